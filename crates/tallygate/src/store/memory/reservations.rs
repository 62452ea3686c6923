//! Reservations: slots of the packed table, so that ids count as keys and expire like them.

use tallygate_core::{Packed, RESERVATION_US, Reservation, Weight};

use super::bucket::{CLAIMED, Slots};
use super::slots::{LockedSlots, PackedBucket};
use super::table::{Claim, LockedBuckets, Place};

/// The bits of a member's hash in `a`; the others are in `b`, above the weight and the estimate.
const A_BITS: u32 = 53;
const LOW_BITS: u32 = 64 - A_BITS;
const ESTIMATE_BITS: u32 = 32;
const WEIGHT_BITS: u32 = 10;

fn pack(reservation: &Reservation) -> Packed {
    let Reservation {
        estimate,
        member,
        weight,
        ..
    } = *reservation;
    let low = member & ((1 << LOW_BITS) - 1);
    Packed {
        expires_at_us: reservation.expires_at_us(),
        a: member >> LOW_BITS,
        b: (low << WEIGHT_BITS | u64::from(weight.get())) << ESTIMATE_BITS | u64::from(estimate),
    }
}

fn unpack(packed: Packed) -> Option<Reservation> {
    let weight = packed.b >> ESTIMATE_BITS & ((1 << WEIGHT_BITS) - 1);
    let low = packed.b >> (ESTIMATE_BITS + WEIGHT_BITS);
    Some(Reservation {
        taken_us: packed.expires_at_us.checked_sub(RESERVATION_US)?,
        estimate: u32::try_from(packed.b & u64::from(u32::MAX)).ok()?,
        member: packed.a << LOW_BITS | low,
        weight: Weight::new(u32::try_from(weight).ok()?).ok()?,
    })
}

impl<'t> LockedBuckets<'t, PackedBucket> {
    /// Claims the slot of a reservation, if there is one.
    pub(super) fn find_reservation(
        &mut self,
        place: Place<'t, PackedBucket>,
    ) -> Option<(Claim, Option<Reservation>)> {
        let tag = place.id.tag();
        for bucket in place.table.indices(place.id) {
            let slots = self.slots(place.table, bucket);
            if let Some(at) = slots.find(tag) {
                let reservation = unpack(slots.packed(at));
                slots.set(at, tag, claimed());
                return Some((Claim { bucket, at }, reservation));
            }
        }
        None
    }

    /// Stores what became of a claimed reservation.
    pub(super) fn store_reservation(
        &mut self,
        place: Place<'t, PackedBucket>,
        claim: Claim,
        reservation: Option<Reservation>,
    ) {
        self.store_with(
            place,
            claim,
            |slots: &mut LockedSlots<'t>, at, tag| match reservation {
                Some(reservation) => slots.set(at, tag, pack(&reservation)),
                None => slots.vacate(at),
            },
        );
    }
}

fn claimed() -> Packed {
    Packed {
        expires_at_us: CLAIMED,
        ..Packed::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packed_reservation_loses_no_bit() {
        for bit in 0..64 {
            for weight in [1, 1_000] {
                let reservation = Reservation {
                    taken_us: 1 << bit.min(51),
                    estimate: 1 << bit.min(31),
                    member: 1 << bit,
                    weight: Weight::new(weight).unwrap(),
                };
                let packed = pack(&reservation);
                assert!(packed.a < 1 << 53 && packed.b < 1 << 60);
                assert_eq!(unpack(packed), Some(reservation));
            }
        }
    }
}
