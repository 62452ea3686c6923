//! Who asks, as far as a limit tells callers apart, and what was reserved for one.

use core::fmt;

/// How long a reservation is remembered: an hour after its moment.
pub const RESERVATION_US: u64 = 3_600_000_000;

/// The most members of a shared bucket that one epoch keeps. Later ones only borrow.
pub const MAX_MEMBERS: u32 = 10_000;

/// Who asks: the member of a shared bucket, or the owner of what a concurrency limit holds. Other
/// limits ignore it.
///
/// Members and owners are hashes of their names; the core sees no text. The default is one nameless
/// caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// The member of a shared bucket.
    pub member: u64,
    /// The weight of the member.
    pub weight: Weight,
    /// The owner of units of a concurrency limit.
    pub owner: u64,
    /// Whether the counter may keep one more member or owner.
    pub room: Room,
}

impl Caller {
    /// A nameless caller.
    pub const NONE: Self = Caller {
        member: 0,
        weight: Weight::ONE,
        owner: 0,
        room: Room::Bounded,
    };
}

/// Whether a counter may keep one more member or owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Room {
    /// Up to [`MAX_MEMBERS`] members an epoch, and as many owners as the limit has units.
    #[default]
    Bounded,
    /// Always: the operator named this member.
    Always,
    /// Not now: there is no memory for more. New members only borrow, new owners are refused.
    Full,
}

/// The weight of a member of a shared bucket: 1 to 1000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Weight(u16);

impl Weight {
    /// The default.
    pub const ONE: Self = Weight(1);
    /// The largest weight.
    pub const MAX: Self = Weight(1_000);

    /// Checks a weight.
    ///
    /// # Errors
    /// When it is 0 or above 1000.
    ///
    /// ```
    /// use tallygate_core::Weight;
    ///
    /// assert_eq!(Weight::new(4)?.get(), 4);
    /// let error = Weight::new(0).unwrap_err();
    /// assert_eq!(error.to_string(), "weight 0 is out of range: 1 to 1000");
    /// # Ok::<(), tallygate_core::WeightError>(())
    /// ```
    pub const fn new(weight: u32) -> Result<Self, WeightError> {
        match weight {
            #[expect(clippy::cast_possible_truncation, reason = "compared by the pattern")]
            1..=1_000 => Ok(Weight(weight as u16)),
            _ => Err(WeightError { weight }),
        }
    }

    /// The number.
    #[inline]
    pub const fn get(self) -> u16 {
        self.0
    }
}

impl Default for Weight {
    fn default() -> Self {
        Weight::ONE
    }
}

/// The error of a weight that is 0 or above 1000.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WeightError {
    weight: u32,
}

impl fmt::Display for WeightError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (weight, max) = (self.weight, Weight::MAX.0);
        write!(f, "weight {weight} is out of range: 1 to {max}")
    }
}

impl core::error::Error for WeightError {}

/// What a [reserve](crate::Verb::Reserve) took, remembered until it is settled, for an hour at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// The [effective time](crate::State::effective_time_us) of the reserve.
    pub taken_us: u64,
    /// The units taken.
    pub estimate: u32,
    /// The member that reserved.
    pub member: u64,
    /// The weight of the member.
    pub weight: Weight,
}

impl Reservation {
    /// From this time on it is forgotten.
    #[inline]
    pub fn expires_at_us(&self) -> u64 {
        self.taken_us + RESERVATION_US
    }

    /// The reservation, unless it is forgotten by now.
    #[inline]
    pub fn live(self, now: u64) -> Option<Self> {
        (now < self.expires_at_us()).then_some(self)
    }
}
