//! ACL users with different permissions.

/// An ACL user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum User {
    /// May do everything.
    Admin,
    /// Has exactly the permissions that Tallygate needs.
    Limited,
    /// May connect and read its own keys, but not run scripts.
    Powerless,
}

impl User {
    /// All users.
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

    /// The permissions, as arguments of `ACL SETUSER`.
    #[must_use]
    pub fn permissions(self) -> &'static [&'static str] {
        match self {
            Self::Admin => &["~*", "&*", "+@all"],
            Self::Limited => &[
                "~tallygate:*",
                "+eval",
                "+evalsha",
                "+script|load",
                "+time",
                "+get",
                "+mget",
                "+getrange",
                "+set",
                "+setrange",
                "+del",
                "+pexpireat",
                // For concurrency limits and fair shares.
                "+hmget",
                "+hset",
                "+hdel",
                "+hlen",
                "+hgetall",
                "+zrange",
                "+zrem",
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

    /// All arguments of `ACL SETUSER`: `on`, the password, the permissions.
    #[must_use]
    pub(crate) fn rules(self) -> Vec<String> {
        let mut rules = vec!["on".to_owned(), format!(">{}", self.password())];
        rules.extend(self.permissions().iter().map(|right| (*right).to_owned()));
        rules
    }
}
