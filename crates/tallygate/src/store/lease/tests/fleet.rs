//! Several processes over one store, with delayed and lost messages and kills at every event, on
//! clocks that drift, against the exact model.

use std::collections::BTreeMap;

use super::*;

struct Fleet {
    quota: Quota,
    state: State,
    processes: Vec<Process>,
    /// Sent by processes that were killed since: carried out, and nobody hears of it.
    orphans: Vec<(u64, Message)>,
    /// The store's time of the last message: it does not go back.
    t: u64,
    /// Units spent, by the store's time.
    spent: BTreeMap<u64, u64>,
    /// The same units, by the time when they were debited.
    debited: BTreeMap<u64, u64>,
    saved: u64,
    killed_with: u64,
}

struct Process {
    leases: Leases<()>,
    /// The local clock, in millionths of the store's speed.
    speed: u64,
    /// With the times when each arrives and when it was sent.
    messages: Vec<(u64, u64, Message)>,
}

enum Message {
    Lease(LeaseRequest<()>),
    Return(LeaseReturn<()>),
    /// The end of a request that spent so many units.
    End {
        cost: u32,
        spent: Spent,
        spending: Spending,
        /// When it spent them, by the store's clock.
        store_us: u64,
    },
}

/// When a process is killed.
enum Kills {
    Random,
    /// The first one, after that event.
    After(u32),
}

impl Fleet {
    fn new(quota: Quota, processes: usize, rng: &mut Rng) -> Self {
        let processes = (0..processes).map(|_| Process {
            leases: Leases::new(),
            speed: SECOND - 900 + rng.u64(..1_800),
            messages: Vec::new(),
        });
        Fleet {
            quota,
            state: State::New,
            processes: processes.collect(),
            orphans: Vec::new(),
            t: 0,
            spent: BTreeMap::new(),
            debited: BTreeMap::new(),
            saved: 0,
            killed_with: 0,
        }
    }

    fn replicas(&self) -> u32 {
        u32::try_from(self.processes.len()).unwrap()
    }

    fn local_us(&self, process: usize, t: u64) -> u64 {
        t * self.processes[process].speed / SECOND
    }

    fn run(&mut self, rng: &mut Rng, events: u32, kills: &Kills) {
        let pause = [2_000, 8_000, 30_000][rng.usize(..3)];
        let mut t = 0;
        for event in 0..events {
            t += rng.u64(..pause);
            self.deliver(rng, t);
            let at = rng.usize(..self.processes.len());
            match rng.u8(..40) {
                0 if matches!(kills, Kills::Random) => self.kill(rng, at),
                1..10 => self.tick(rng, at, t),
                _ => self.request(rng, at, t),
            }
            if let Kills::After(last) = kills
                && *last == event
            {
                self.kill(rng, 0);
            }
            if event % 100 == 0 {
                self.check_undos(t);
            }
        }
        self.check_undos(t);
    }

    /// A message may be carried out although its sender is gone.
    fn kill(&mut self, rng: &mut Rng, at: usize) {
        let replicas = self.replicas();
        let process = &mut self.processes[at];
        let in_flight = process.messages.iter().map(|(.., message)| match message {
            Message::Lease(request) => request.max,
            Message::Return(one) => one.units,
            Message::End { cost, spending, .. } => match spending {
                Spending::Pending => *cost,
                Spending::Final => 0,
            },
        });
        let held = process.leases.stats().outstanding + in_flight.map(u64::from).sum::<u64>();
        // At most one lease is stranded.
        let lease = self.quota.capacity() / divisor(replicas);
        assert!(held <= u64::from(lease), "{held} of {lease}");
        self.killed_with += held;
        process.leases = Leases::new();
        for (due, _, message) in std::mem::take(&mut process.messages) {
            match message {
                Message::End {
                    cost,
                    spent,
                    spending: Spending::Final,
                    store_us,
                } => self.count_spent(cost, &spent, store_us),
                Message::End { .. } => {}
                _ if rng.bool() => self.orphans.push((due, message)),
                _ => {}
            }
        }
    }

    fn count_spent(&mut self, cost: u32, spent: &Spent, store_us: u64) {
        self.saved += u64::from(cost);
        *self.spent.entry(store_us).or_default() += u64::from(cost);
        *self.debited.entry(spent.taken_us).or_default() += u64::from(cost);
    }

    fn tick(&mut self, rng: &mut Rng, at: usize, t: u64) {
        let now_us = self.local_us(at, t);
        let process = &mut self.processes[at];
        for one in process.leases.tick(now_us) {
            let due = t + rng.u64(..400_000);
            process.messages.push((due, t, Message::Return(one)));
        }
    }

    fn request(&mut self, rng: &mut Rng, at: usize, t: u64) {
        let (n, quota) = (self.replicas(), self.quota);
        let cost = rng.u32(1..4);
        let counter = counter(&quota, cost);
        let now_us = self.local_us(at, t);
        let leases = &self.processes[at].leases;
        // Some have other limits, which take their time; some are undone later.
        let (spending, ends_later) = match rng.u8(..8) {
            0..3 => (Spending::Pending, true),
            3 => (Spending::Final, true),
            _ => (Spending::Final, false),
        };
        let due = if let Some(spent) = leases.spend(&counter, spending, n, now_us) {
            let store_us = STORE_START + t;
            // In the window in which they were debited.
            assert_eq!(
                quota.window_end_us(store_us),
                quota.window_end_us(spent.taken_us)
            );
            if ends_later {
                let end = Message::End {
                    cost,
                    spent,
                    spending,
                    store_us,
                };
                let ends = t + rng.u64(..200_000);
                self.processes[at].messages.push((ends, t, end));
            } else {
                self.count_spent(cost, &spent, store_us);
            }
            spent.renew && spending == Spending::Final
        } else {
            self.t = self.t.max(t);
            let store_us = STORE_START + self.t;
            let taken_us = self.state.effective_time_us(&quota, store_us);
            let verdict = evaluate(&quota, &mut self.state, Verb::Check, cost, store_us);
            if verdict.allowed() {
                *self.spent.entry(store_us).or_default() += u64::from(cost);
                *self.debited.entry(taken_us).or_default() += u64::from(cost);
            }
            leases.on_check(&counter, || (), &verdict, n, now_us)
        };
        if due {
            self.request_lease(rng, at, t);
        }
    }

    fn request_lease(&mut self, rng: &mut Rng, at: usize, t: u64) {
        let n = self.replicas();
        let process = &mut self.processes[at];
        if let Some(request) = process.leases.request(7, n) {
            let arrives = t + rng.u64(..100_000);
            process.messages.push((arrives, t, Message::Lease(request)));
        }
    }

    /// Half of the requests with pending units are refused elsewhere, and half of the others undone.
    fn end(&mut self, rng: &mut Rng, at: usize, t: u64, message: &Message) {
        let Message::End {
            cost,
            spent,
            spending,
            store_us,
        } = message
        else {
            return;
        };
        let (cost, gives_up) = (*cost, rng.bool());
        let leases = &self.processes[at].leases;
        match (spending, gives_up) {
            (Spending::Pending, true) => {
                let quota = self.quota;
                if let Some(one) = leases.put_back(&counter(&quota, cost), spent, || ()) {
                    let due = t + rng.u64(..400_000);
                    let message = Message::Return(one);
                    self.processes[at].messages.push((due, t, message));
                }
            }
            (Spending::Pending, false) => {
                leases.keep(7, cost, spent);
                self.count_spent(cost, spent, *store_us);
                if spent.renew {
                    self.request_lease(rng, at, t);
                }
            }
            (Spending::Final, true) if leases.undo(7, cost, spent.taken_us) => {}
            (Spending::Final, _) => self.count_spent(cost, spent, *store_us),
        }
    }

    /// Carries out the messages that have arrived by now, in order.
    fn deliver(&mut self, rng: &mut Rng, t: u64) {
        loop {
            let sent = self.processes.iter().enumerate().flat_map(|(at, process)| {
                let messages = process.messages.iter().enumerate();
                messages.map(move |(i, (due, ..))| (*due, Some(at), i))
            });
            let orphans = self.orphans.iter().enumerate();
            let all = sent.chain(orphans.map(|(i, (due, _))| (*due, None, i)));
            let Some((due, sender, i)) = all.filter(|(due, ..)| *due <= t).min() else {
                return;
            };
            self.t = self.t.max(due);
            match sender {
                Some(at) => {
                    let (_, sent, message) = self.processes[at].messages.remove(i);
                    self.end(rng, at, due, &message);
                    self.carry_out(rng, &message, Some((at, sent, t)));
                }
                None => {
                    let (_, message) = self.orphans.remove(i);
                    self.carry_out(rng, &message, None);
                }
            }
        }
    }

    /// Some messages are lost on their way, the replies to others on theirs.
    fn carry_out(&mut self, rng: &mut Rng, message: &Message, sender: Option<(usize, u64, u64)>) {
        let store_us = STORE_START + self.t;
        let (lost, reply_lost) = (rng.u8(..20) == 0, rng.u8(..20) == 0);
        match message {
            Message::Lease(request) => {
                let (quota, max, divisor) = (request.quota, request.max, request.divisor);
                let granted = (!lost).then(|| {
                    let taken_us = self.state.effective_time_us(&quota, store_us);
                    let verdict = evaluate_lease(&quota, &mut self.state, max, divisor, store_us);
                    (verdict, taken_us)
                });
                let Some((at, sent, t)) = sender else {
                    return;
                };
                let speed = self.processes[at].speed;
                let leases = &self.processes[at].leases;
                match granted.filter(|_| !reply_lost) {
                    Some((verdict, taken_us)) => {
                        let timing = Timing {
                            sent_us: sent * speed / SECOND,
                            received_us: t * speed / SECOND,
                            found_us: store_us,
                        };
                        leases.on_granted(request, &verdict, taken_us, timing);
                    }
                    None => leases.on_failed(request, true),
                }
            }
            Message::End { .. } => {}
            Message::Return(one) => {
                if !lost {
                    let (quota, units) = (one.quota, one.units);
                    undo(&quota, &mut self.state, one.taken_us, units, store_us);
                }
                if let Some((at, ..)) = sender {
                    let leases = &self.processes[at].leases;
                    leases.on_returned(one, !lost && !reply_lost);
                }
            }
        }
    }

    /// No undo has lowered what was spent: the store has at most what it would have if only that had
    /// ever been taken.
    fn check_undos(&self, t: u64) {
        let store_us = STORE_START + t.max(self.t);
        let mut exact = State::New;
        for (taken_us, units) in &self.debited {
            let units = u32::try_from(*units).unwrap();
            evaluate(&self.quota, &mut exact, Verb::Charge, units, *taken_us);
        }
        let left = |state: &State| {
            evaluate(&self.quota, &mut state.clone(), Verb::Peek, 0, store_us).remaining
        };
        let (real, exact) = (left(&self.state), left(&exact));
        assert!(real <= exact, "{}: {real} of {exact} left", self.quota);
    }

    /// Windows keep their worst case over every span; others admit at most the outstanding units
    /// more.
    fn check_bound(&self, seed: &str) {
        let quota = self.quota;
        let more = match quota.window_end_us(0) {
            Some(_) => 0,
            None => u64::from(quota.capacity() / SHARE),
        };
        let times: Vec<u64> = self.spent.keys().copied().collect();
        for (i, from) in times.iter().enumerate() {
            let mut sum = 0;
            for to in &times[i..] {
                sum += self.spent[to];
                let span = to - from + 1;
                let bound = quota.worst_case(span) + more;
                assert!(
                    sum <= bound,
                    "seed {seed}, {quota}: {sum} of {bound} in {span}us"
                );
            }
        }
    }
}

const QUOTAS: [&str; 7] = [
    "fixed-window 300/s",
    "fixed-window 900/3s",
    "400/s",
    "900/2s",
    "token-bucket 300/s burst 400",
    "leaky-bucket 200/s burst 600",
    "sliding-window-log 500/2s",
];

#[test]
fn random_schedules_with_kills_stay_within_the_bound() {
    let (mut saved, mut killed_with) = (0, 0);
    for seed in 0..70 {
        let mut rng = Rng::with_seed(seed);
        let quota = QUOTAS[usize::try_from(seed).unwrap() % QUOTAS.len()];
        let processes = rng.usize(1..5);
        let mut fleet = Fleet::new(quota.parse().unwrap(), processes, &mut rng);
        fleet.run(&mut rng, 1_000, &Kills::Random);
        fleet.check_bound(&seed.to_string());
        saved += fleet.saved;
        killed_with += fleet.killed_with;
    }
    assert!(
        saved > 10_000 && killed_with > 1_000,
        "{saved} saved, {killed_with} killed"
    );
}

#[test]
fn a_kill_at_any_event_strands_one_lease_and_keeps_the_bound() {
    let mut killed_with = 0;
    for (seed, quota) in (0..).zip(QUOTAS) {
        for event in 0..150 {
            let mut rng = Rng::with_seed(seed);
            let mut fleet = Fleet::new(quota.parse().unwrap(), 2, &mut rng);
            fleet.run(&mut rng, 250, &Kills::After(event));
            fleet.check_bound(&format!("{seed}, event {event}"));
            killed_with += fleet.killed_with;
        }
    }
    assert!(killed_with > 1_000, "{killed_with}");
}
