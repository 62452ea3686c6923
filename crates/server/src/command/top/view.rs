//! What is shown, and how keys change it.

// For display only.
#![allow(clippy::float_arithmetic)]

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::time::Instant;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::event::{Event, Rule, TopKey};

/// The seconds of the sparkline.
const MAX_PAST: usize = 300;
const MAX_FILTER_CHARS: usize = 60;

pub(super) struct View {
    pub(super) url: String,
    pub(super) event: Option<Event>,
    /// Admitted and refused per second, the latest last.
    pub(super) past: VecDeque<(u64, u64)>,
    /// Why there is no stream, and when the last event came.
    pub(super) lost: Option<String>,
    pub(super) seen: Option<Instant>,
    pub(super) sort: Sort,
    pub(super) reverse: bool,
    pub(super) filter: String,
    pub(super) typing: bool,
    pub(super) paused: bool,
    pub(super) help: bool,
    pub(super) focus: Focus,
    /// The first row that is shown of each list.
    pub(super) offsets: [usize; 3],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Focus {
    Rules,
    Refused,
    Frequent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    File,
    Name,
    Admitted,
    Refused,
    WouldRefuse,
    Delayed,
    Degraded,
    Total,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Stay,
    Suspend,
    Quit,
}

impl Sort {
    pub(super) const ALL: [Self; 8] = [
        Sort::File,
        Sort::Name,
        Sort::Admitted,
        Sort::Refused,
        Sort::WouldRefuse,
        Sort::Delayed,
        Sort::Degraded,
        Sort::Total,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Sort::File => "as in the file",
            Sort::Name => "name",
            Sort::Admitted => "admitted",
            Sort::Refused => "refused",
            Sort::WouldRefuse => "would refuse",
            Sort::Delayed => "delayed",
            Sort::Degraded => "degraded",
            Sort::Total => "total",
        }
    }

    /// The largest numbers first, names from A.
    fn compare(self, a: &Rule, b: &Rule) -> Ordering {
        let by = |value: fn(&Rule) -> f64| value(b).total_cmp(&value(a));
        match self {
            Sort::File => Ordering::Equal,
            Sort::Name => a.name().cmp(b.name()),
            Sort::Admitted => by(|rule| rule.per_second.admitted),
            Sort::Refused => by(|rule| rule.per_second.refused),
            Sort::WouldRefuse => by(|rule| rule.per_second.shadow_refused),
            Sort::Delayed => by(|rule| rule.per_second.delayed),
            Sort::Degraded => by(|rule| rule.per_second.degraded()),
            Sort::Total => by(|rule| rule.total.sum()),
        }
    }
}

impl View {
    pub(super) fn new(url: &str) -> Self {
        View {
            url: url.to_owned(),
            event: None,
            past: VecDeque::new(),
            lost: None,
            seen: None,
            sort: Sort::File,
            reverse: false,
            filter: String::new(),
            typing: false,
            paused: false,
            help: false,
            focus: Focus::Rules,
            offsets: [0; 3],
        }
    }

    pub(super) fn show(&mut self, event: Event) {
        self.lost = None;
        self.seen = Some(Instant::now());
        let now = event.per_second();
        if self.past.len() == MAX_PAST {
            self.past.pop_front();
        }
        let admitted = (now.admitted + now.delayed).round() as u64;
        self.past.push_back((admitted, now.refused.round() as u64));
        if !self.paused {
            self.event = Some(event);
        }
    }

    pub(super) fn lose(&mut self, error: String) {
        self.lost = Some(error);
    }

    /// The rules in order, filtered.
    pub(super) fn rules(&self) -> Vec<&Rule> {
        let all = self.event.iter().flat_map(|event| &event.rules);
        let mut rules: Vec<&Rule> = all.filter(|rule| self.matches(rule.name())).collect();
        rules.sort_by(|a, b| self.sort.compare(a, b));
        if self.reverse {
            rules.reverse();
        }
        rules
    }

    /// The keys of a list, filtered by key or rule.
    pub(super) fn keys(&self, list: Focus) -> Vec<&TopKey> {
        let top = self.event.as_ref().map(|event| &event.top);
        let all = top.map_or(&[][..], |top| match list {
            Focus::Refused => &top.refused,
            Focus::Rules | Focus::Frequent => &top.hottest,
        });
        let shown = |top: &&TopKey| self.matches(&top.key) || self.matches(&top.origin());
        all.iter().filter(shown).collect()
    }

    fn matches(&self, text: &str) -> bool {
        text.to_lowercase().contains(&self.filter.to_lowercase())
    }

    pub(super) fn press(&mut self, key: KeyEvent) -> Action {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        if control && matches!(key.code, KeyCode::Char('c' | 'd')) {
            return Action::Quit;
        }
        if control && key.code == KeyCode::Char('z') {
            return Action::Suspend;
        }
        if self.typing {
            self.type_filter(key.code);
            return Action::Stay;
        }
        match key.code {
            KeyCode::Char('q') => return Action::Quit,
            KeyCode::Esc if self.help => self.help = false,
            KeyCode::Esc if !self.filter.is_empty() => self.filter.clear(),
            KeyCode::Esc => return Action::Quit,
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => self.help = !self.help,
            KeyCode::Char('/') => (self.typing, self.help) = (true, false),
            KeyCode::Char('s' | '>') => self.next_sort(1),
            KeyCode::Char('S' | '<') => self.next_sort(Sort::ALL.len() - 1),
            KeyCode::Char('r') => self.reverse = !self.reverse,
            KeyCode::Char('p' | ' ') => self.paused = !self.paused,
            KeyCode::Tab => self.focus = self.focus.next(),
            KeyCode::BackTab => self.focus = self.focus.next().next(),
            KeyCode::Down | KeyCode::Char('j') => self.scroll(1),
            KeyCode::Up | KeyCode::Char('k') => self.scroll(-1),
            KeyCode::PageDown => self.scroll(10),
            KeyCode::PageUp => self.scroll(-10),
            KeyCode::Home | KeyCode::Char('g') => self.offsets[self.focus as usize] = 0,
            KeyCode::End | KeyCode::Char('G') => self.scroll(isize::MAX / 2),
            _ => {}
        }
        Action::Stay
    }

    fn type_filter(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => self.typing = false,
            KeyCode::Esc => {
                self.typing = false;
                self.filter.clear();
            }
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Char(letter) if self.filter.chars().count() < MAX_FILTER_CHARS => {
                self.filter.push(letter);
            }
            _ => {}
        }
        self.offsets = [0; 3];
    }

    fn next_sort(&mut self, by: usize) {
        let at = Sort::ALL.iter().position(|sort| *sort == self.sort);
        self.sort = Sort::ALL[(at.unwrap_or(0) + by) % Sort::ALL.len()];
    }

    fn scroll(&mut self, by: isize) {
        let rows = match self.focus {
            Focus::Rules => self.rules().len(),
            list => self.keys(list).len(),
        };
        let offset = &mut self.offsets[self.focus as usize];
        *offset = offset.saturating_add_signed(by).min(rows.saturating_sub(1));
    }
}

impl Focus {
    fn next(self) -> Self {
        match self {
            Focus::Rules => Focus::Refused,
            Focus::Refused => Focus::Frequent,
            Focus::Frequent => Focus::Rules,
        }
    }
}
