//! Users with more or fewer rights. Knows the product only by the rights it needs.

/// A user that a server can be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum User {
    /// May do everything.
    Admin,
    /// May do what Tallygate needs on its own keys, and nothing else.
    Limited,
    /// May connect, and read its own keys; lacks the right to run scripts.
    Powerless,
}

impl User {
    /// Everyone.
    pub const ALL: [Self; 3] = [Self::Admin, Self::Limited, Self::Powerless];

    /// The name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Limited => "limited",
            Self::Powerless => "powerless",
        }
    }

    /// The password.
    #[must_use]
    pub fn password(self) -> &'static str {
        match self {
            Self::Admin => "admin-secret",
            Self::Limited => "limited-secret",
            Self::Powerless => "powerless-secret",
        }
    }

    /// The rights, as `ACL SETUSER` wants them.
    #[must_use]
    pub fn rights(self) -> &'static [&'static str] {
        match self {
            Self::Admin => &["~*", "&*", "+@all"],
            Self::Limited => &[
                "~tallygate:*",
                "+eval",
                "+evalsha",
                "+time",
                "+get",
                "+mget",
                "+getrange",
                "+set",
                "+setrange",
                "+del",
                "+pexpireat",
                "+info",
                "+ping",
                // With Sentinel; in a cluster; to clear a namespace; to count replicas.
                "+role",
                "+cluster|slots",
                "+asking",
                "+scan",
                "+unlink",
                "+zadd",
                "+zremrangebyscore",
                "+zcard",
                "+pexpire",
            ],
            Self::Powerless => &["~tallygate:*", "+@connection", "+info", "+time", "+get"],
        }
    }

    /// What makes this user: `on`, the password, the rights.
    #[must_use]
    pub(crate) fn rules(self) -> Vec<String> {
        let mut rules = vec!["on".to_owned(), format!(">{}", self.password())];
        rules.extend(self.rights().iter().map(|right| (*right).to_owned()));
        rules
    }
}
