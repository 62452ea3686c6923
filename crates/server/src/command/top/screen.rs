//! Draws the view. Narrow terminals show fewer columns, low ones fewer lists.

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Cell, Clear, Paragraph, Row, Sparkline, Table, Wrap};

use super::event::{Event, Rule, count, latency, rate};
use super::view::{Focus, Sort, View};

/// From this width on, the lists are side by side and the rules have all columns.
const WIDE: u16 = 92;
/// Below this width, a rule has only its name and what is admitted and refused.
const NARROW: u16 = 60;

const HELP: &[(&str, &str)] = &[
    ("q, Ctrl-C", "quit; Ctrl-Z: suspend, fg continues"),
    ("Tab", "next list"),
    ("j k, arrows", "scroll; g G: start, end"),
    ("s S", "sort the rules by the next, previous column"),
    ("r", "reverse the order"),
    ("/", "filter by rule or key; Esc clears"),
    ("p", "pause"),
    ("?", "this help"),
];

pub(super) fn draw(frame: &mut Frame<'_>, view: &View) {
    let area = frame.area();
    let has_chart = area.height >= 16;
    let [head, chart, main, foot] = Layout::vertical([
        Constraint::Length(if area.width >= NARROW { 2 } else { 3 }),
        Constraint::Length(if has_chart { 2 } else { 0 }),
        Constraint::Min(3),
        Constraint::Length(1),
    ])
    .areas(area);
    draw_head(frame, head, view);
    draw_chart(frame, chart, view);
    match &view.event {
        None => draw_waiting(frame, main, view),
        Some(event) => draw_lists(frame, main, view, event),
    }
    draw_foot(frame, foot, view);
    if view.help {
        draw_help(frame, area);
    }
}

fn draw_head(frame: &mut Frame<'_>, area: Rect, view: &View) {
    let state = match (&view.lost, view.paused, &view.event) {
        (Some(_), ..) => Span::from("lost").fg(Color::Red).bold(),
        (None, true, _) => Span::from("paused").fg(Color::Yellow).bold(),
        (None, false, Some(_)) => Span::from("live").fg(Color::Green),
        (None, false, None) => Span::from("connecting").fg(Color::Yellow),
    };
    let version = view.event.as_ref().map_or("", |event| &*event.version);
    let name = format!("Tallygate {version} ");
    let mut first = vec![Span::from(name).bold(), state, Span::from("  ")];
    if let Some(event) = &view.event {
        first.push(Span::from(format!(
            "{}  up {}  ",
            event.time(),
            event.uptime()
        )));
    }
    first.push(Span::from(view.url.clone()).dim());
    let mut lines = vec![Line::from(first)];
    if let Some(event) = &view.event {
        let is_narrow = area.width < NARROW;
        lines.extend(store_lines(event, is_narrow));
    }
    frame.render_widget(Paragraph::new(lines), area);
}

fn store_lines(event: &Event, is_narrow: bool) -> Vec<Line<'static>> {
    let store = &event.store;
    let breaker = match store.breaker.as_str() {
        "open" => Span::from("breaker open").fg(Color::Red).bold(),
        state => Span::from(format!("breaker {state}")),
    };
    let mut first = vec![Span::from(format!("{}  ", store.kind)), breaker];
    if event.kill_switch != "off" {
        let text = format!("  kill switch {}", event.kill_switch);
        first.push(Span::from(text).fg(Color::Red).bold());
    }
    let mut second = vec![Span::from(format!(
        "p50 {}  p99 {}",
        latency(store.p50_us),
        latency(store.p99_us)
    ))];
    second.push(Span::from(format!("  keys {}", count(event.keys))));
    for (name, number) in [
        ("errors", store.errors),
        ("shared budgets", event.shared),
        ("failed reloads", event.reload_errors),
    ] {
        if number > 0 {
            let text = format!("  {name} {}", count(number));
            second.push(Span::from(text).fg(Color::Red));
        }
    }
    match is_narrow {
        true => vec![Line::from(first), Line::from(second)],
        false => {
            first.push(Span::from("  "));
            first.extend(second);
            vec![Line::from(first)]
        }
    }
}

/// Admitted and refused requests of the last seconds, on one scale.
fn draw_chart(frame: &mut Frame<'_>, area: Rect, view: &View) {
    let now = view.event.as_ref().map(Event::per_second);
    let now = now.unwrap_or_default();
    let highest = view.past.iter().map(|(yes, no)| *yes.max(no)).max();
    let rows = Layout::vertical([Constraint::Length(1); 2]).split(area);
    let both: [(&str, f64, Color, Vec<u64>); 2] = [
        (
            "admitted",
            now.admitted,
            Color::Green,
            view.past.iter().map(|(yes, _)| *yes).collect(),
        ),
        (
            "refused",
            now.refused,
            Color::Red,
            view.past.iter().map(|(_, no)| *no).collect(),
        ),
    ];
    for (row, (name, per_second, color, past)) in rows.iter().zip(both) {
        let [label, bars] =
            Layout::horizontal([Constraint::Length(18), Constraint::Min(1)]).areas(*row);
        let text = format!("{name:<8} {:>7}/s", rate(per_second));
        frame.render_widget(Paragraph::new(Span::from(text).fg(color)), label);
        let shown = past.len().min(usize::from(bars.width));
        let sparkline = Sparkline::default()
            .data(past[past.len() - shown..].to_vec())
            .max(highest.unwrap_or(0).max(1))
            .style(Style::new().fg(color));
        frame.render_widget(sparkline, bars);
    }
}

fn draw_waiting(frame: &mut Frame<'_>, area: Rect, view: &View) {
    let text = match &view.lost {
        Some(error) => format!("{error}\n\nTrying again. Is the server running?"),
        None => format!("Connecting to {}", view.url),
    };
    frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: true }), area);
}

fn draw_lists(frame: &mut Frame<'_>, area: Rect, view: &View, event: &Event) {
    let lists = [Focus::Refused, Focus::Frequent];
    let longest = lists.map(|list| view.keys(list).len()).into_iter().max();
    let wanted = u16::try_from(longest.unwrap_or(0).max(1)).unwrap_or(u16::MAX);
    let rules = u16::try_from(event.rules.len()).unwrap_or(u16::MAX);
    // The rules get what they need, up to more than half; low terminals show the list in focus only.
    let rule_rows =
        Constraint::Length(rules.saturating_add(2).clamp(4, area.height.max(8) / 2 + 1));
    if area.height < 12 {
        match view.focus {
            Focus::Rules => draw_rules(frame, area, view),
            list => draw_keys(frame, area, view, list),
        }
        return;
    }
    if area.width >= WIDE {
        let keys = Constraint::Min(wanted.saturating_add(1).min(6));
        let [top, bottom] = Layout::vertical([rule_rows, keys]).areas(area);
        draw_rules(frame, top, view);
        let halves = [Constraint::Percentage(50); 2];
        let halves: [Rect; 2] = Layout::horizontal(halves).spacing(2).areas(bottom);
        for (list, half) in lists.into_iter().zip(halves) {
            draw_keys(frame, half, view, list);
        }
    } else {
        let [top, middle, bottom] =
            Layout::vertical([rule_rows, Constraint::Fill(1), Constraint::Fill(1)]).areas(area);
        draw_rules(frame, top, view);
        draw_keys(frame, middle, view, Focus::Refused);
        draw_keys(frame, bottom, view, Focus::Frequent);
    }
}

fn title(text: String, is_focused: bool) -> Block<'static> {
    let style = match is_focused {
        true => Style::new().add_modifier(Modifier::BOLD),
        false => Style::new().add_modifier(Modifier::DIM),
    };
    Block::new()
        .borders(Borders::TOP)
        .border_style(Style::new().add_modifier(Modifier::DIM))
        .title(Span::styled(text, style))
}

fn draw_rules(frame: &mut Frame<'_>, area: Rect, view: &View) {
    let rules = view.rules();
    let columns = columns(area.width);
    let head = columns.iter().map(|(sort, name, _)| {
        let is_sorted = *sort == view.sort;
        let text = Line::from(*name).alignment(alignment(*sort));
        Cell::from(text).style(match is_sorted {
            true => Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED),
            false => Style::new().add_modifier(Modifier::DIM),
        })
    });
    let offset = view.offsets[Focus::Rules as usize].min(rules.len().saturating_sub(1));
    let rows = rules.iter().skip(offset).map(|rule| {
        let cells = columns.iter().map(|(sort, ..)| {
            let text = cell(rule, *sort);
            let style = match (sort, &*text) {
                (Sort::Name, _) => Style::new(),
                (_, "0") => Style::new().add_modifier(Modifier::DIM),
                (Sort::Refused | Sort::Degraded, _) => Style::new().fg(Color::Red),
                (Sort::Admitted, _) => Style::new().fg(Color::Green),
                (Sort::Delayed | Sort::WouldRefuse, _) => Style::new().fg(Color::Yellow),
                (Sort::Total | Sort::File, _) => Style::new(),
            };
            Cell::from(Line::from(text).alignment(alignment(*sort))).style(style)
        });
        Row::new(cells)
    });
    let widths = columns.iter().map(|(_, _, width)| *width);
    let order = if view.reverse { ", reversed" } else { "" };
    let text = format!(" Rules, {}{order} ", view.sort.name());
    let table = Table::new(rows, widths)
        .header(Row::new(head))
        .column_spacing(1)
        .block(title(text, view.focus == Focus::Rules));
    frame.render_widget(table, area);
}

/// The columns of the rules for a width: the order they sort by, their name and width.
fn columns(width: u16) -> Vec<(Sort, &'static str, Constraint)> {
    let number = Constraint::Length;
    let name = (Sort::Name, "rule", Constraint::Fill(2));
    if width < NARROW {
        return vec![
            name,
            (Sort::Admitted, "adm/s", number(7)),
            (Sort::Refused, "ref/s", number(7)),
            (Sort::Total, "total", number(9)),
        ];
    }
    let mut columns = vec![
        name,
        (Sort::Admitted, "admitted/s", number(10)),
        (Sort::Refused, "refused/s", number(9)),
        (Sort::WouldRefuse, "would ref/s", number(11)),
        (Sort::Total, "total", number(11)),
    ];
    if width >= WIDE {
        columns.insert(1, (Sort::File, "limits", Constraint::Fill(3)));
        columns.insert(5, (Sort::Delayed, "delayed/s", number(9)));
        columns.insert(6, (Sort::Degraded, "degraded/s", number(10)));
    }
    columns
}

fn alignment(sort: Sort) -> Alignment {
    match sort {
        Sort::Name | Sort::File => Alignment::Left,
        _ => Alignment::Right,
    }
}

fn cell(rule: &Rule, sort: Sort) -> String {
    let now = &rule.per_second;
    match sort {
        Sort::Name => format!("{}{}", rule.name(), rule.flag()),
        Sort::File => rule.limits.join(", "),
        Sort::Admitted => rate(now.admitted),
        Sort::Refused => rate(now.refused),
        Sort::WouldRefuse => rate(now.shadow_refused),
        Sort::Delayed => rate(now.delayed),
        Sort::Degraded => rate(now.degraded()),
        Sort::Total => count(rule.total.sum() as u64),
    }
}

fn draw_keys(frame: &mut Frame<'_>, area: Rect, view: &View, list: Focus) {
    let keys = view.keys(list);
    let (name, color, none) = match list {
        Focus::Refused => (" Most refused keys, 5 min ", Color::Red, "no refusals"),
        Focus::Rules | Focus::Frequent => {
            (" Most frequent keys, 5 min ", Color::Green, "no requests")
        }
    };
    let block = title(name.to_owned(), view.focus == list);
    if keys.is_empty() {
        let text = match (&view.event, list) {
            (Some(event), Focus::Frequent)
                if view.filter.is_empty() && !event.sample.is_empty() =>
            {
                format!("{none}; try: {}", event.sample)
            }
            _ => none.to_owned(),
        };
        let text = Paragraph::new(text)
            .dim()
            .wrap(Wrap { trim: true })
            .block(block);
        frame.render_widget(text, area);
        return;
    }
    let offset = view.offsets[list as usize].min(keys.len() - 1);
    let rows = keys.iter().skip(offset).map(|top| {
        Row::new([
            Cell::from(top.key.clone()),
            Cell::from(top.origin()).style(Style::new().add_modifier(Modifier::DIM)),
            Cell::from(Line::from(count(top.count)).alignment(Alignment::Right)).fg(color),
        ])
    });
    // A key as wide as the longest, up to half of the list; what is left is for its origin.
    let longest = keys.iter().map(|top| top.key.chars().count()).max();
    let longest = u16::try_from(longest.unwrap_or(0)).unwrap_or(u16::MAX);
    let widths = [
        Constraint::Length(longest.clamp(13, (area.width / 2).max(13))),
        Constraint::Fill(1),
        Constraint::Length(7),
    ];
    let table = Table::new(rows, widths).column_spacing(1).block(block);
    frame.render_widget(table, area);
}

fn draw_foot(frame: &mut Frame<'_>, area: Rect, view: &View) {
    let line = if view.typing {
        Line::from(vec![
            Span::from("filter: ").bold(),
            Span::from(format!("{}_", view.filter)),
        ])
    } else if let Some(error) = &view.lost {
        let since = view.seen.map(|seen| seen.elapsed().as_secs());
        let since = since.map_or(String::new(), |s| format!("; shown is from {s} s ago"));
        Line::from(Span::from(format!("{error}{since}")).fg(Color::Red))
    } else if !view.filter.is_empty() {
        Line::from(format!("filter: {}  (Esc clears)", view.filter))
    } else {
        Line::from("q quit  ? help  s sort  / filter  p pause").dim()
    };
    frame.render_widget(Paragraph::new(line), area);
}

fn draw_help(frame: &mut Frame<'_>, area: Rect) {
    let lines = HELP.iter().map(|(keys, what)| {
        Line::from(vec![
            Span::from(format!("{keys:<12}")).bold(),
            Span::from(*what),
        ])
    });
    let height = u16::try_from(HELP.len() + 2)
        .unwrap_or(u16::MAX)
        .min(area.height);
    let width = area.width.min(60);
    let centered = Rect {
        x: area.x + (area.width - width) / 2,
        y: area.y + (area.height - height) / 2,
        width,
        height,
    };
    frame.render_widget(Clear, centered);
    let block = Block::bordered().title(" Keys ");
    frame.render_widget(
        Paragraph::new(lines.collect::<Vec<_>>()).block(block),
        centered,
    );
}
