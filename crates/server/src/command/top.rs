//! `tallygate top`: the live view in the terminal, from the same event stream.

mod event;
mod plain;
mod screen;
mod stream;
mod view;

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use crossterm::event::{Event as TerminalEvent, EventStream, KeyEventKind};
use futures_util::StreamExt;
use ratatui::DefaultTerminal;
use rustix::process::{Signal, getpid, kill_process};
use tokio::signal::unix::{self, SignalKind, signal};
use tokio::sync::mpsc::Receiver;

use self::event::Event;
use self::stream::{Source, Update};
use self::view::{Action, View};
use crate::auth::read_token;
use crate::cli::TopArgs;
use crate::error::Failure;

/// How often the screen is drawn without events, for the time since the last one.
const REDRAW_INTERVAL: Duration = Duration::from_secs(1);

pub(crate) fn run(args: &TopArgs, out: &mut impl Write) -> Result<(), Failure> {
    let token = read_token(args.admin_token_file.as_deref())?;
    let source = Source::new(&args.url, token.filter(|token| !token.is_empty()))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::Outside(format!("cannot start: {error}")))?;
    let is_plain = args.once || args.json || !io::stdout().is_terminal();
    let result = runtime.block_on(async {
        let updates = source.clone().start();
        match is_plain {
            true => print(args, updates, out).await,
            false => show(source.url(), updates).await,
        }
    });
    // A connection attempt may still be under way.
    runtime.shutdown_background();
    result
}

/// Prints each event, or only one.
async fn print(
    args: &TopArgs,
    mut updates: Receiver<Update>,
    out: &mut impl Write,
) -> Result<(), Failure> {
    let mut has_rates = false;
    while let Some(update) = updates.recv().await {
        match update {
            Update::Event(json) => {
                // The first event of a stream that nobody else reads has no rates.
                if args.once && !std::mem::replace(&mut has_rates, true) {
                    continue;
                }
                match args.json {
                    true => writeln!(out, "{json}")?,
                    false => out.write_all(plain::text(&Event::parse(&json)?).as_bytes())?,
                }
                out.flush()?;
                if args.once {
                    return Ok(());
                }
            }
            Update::Lost(error) if args.once => return Err(Failure::Outside(error)),
            Update::Lost(error) => {
                // What is printed is for programs; this is for people.
                let _ = writeln!(io::stderr().lock(), "tallygate: {error}; trying again");
            }
            Update::Refused(error) => return Err(Failure::Outside(error)),
        }
    }
    Ok(())
}

/// Shows the events until the user quits or a signal arrives.
async fn show(url: &str, mut updates: Receiver<Update>) -> Result<(), Failure> {
    let cannot = |error: io::Error| Failure::Outside(format!("cannot use the terminal: {error}"));
    let mut signals = Signals::new().map_err(cannot)?;
    let mut screen = Screen::open().map_err(cannot)?;
    let mut keys = EventStream::new();
    let mut view = View::new(url);
    let mut redraw = tokio::time::interval(REDRAW_INTERVAL);
    loop {
        screen.draw(&view).map_err(cannot)?;
        tokio::select! {
            update = updates.recv() => match update {
                Some(Update::Event(json)) => view.show(Event::parse(&json)?),
                Some(Update::Lost(error)) => view.lose(error),
                Some(Update::Refused(error)) => return Err(Failure::Outside(error)),
                None => return Ok(()),
            },
            key = keys.next() => match key {
                Some(Ok(TerminalEvent::Key(key))) if key.kind != KeyEventKind::Release => {
                    match view.press(key) {
                        Action::Stay => {}
                        Action::Suspend => screen = screen.suspend().map_err(cannot)?,
                        Action::Quit => return Ok(()),
                    }
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(cannot(error)),
                // The terminal is gone.
                None => return Ok(()),
            },
            () = signals.next() => return Ok(()),
            _ = redraw.tick() => {}
        }
    }
}

/// The terminal in its other mode, restored on drop; a hook restores it before a panic is printed.
struct Screen(DefaultTerminal);

impl Screen {
    fn open() -> io::Result<Self> {
        Ok(Screen(ratatui::try_init()?))
    }

    /// Restores the terminal and stops the process, until the shell continues it.
    fn suspend(self) -> io::Result<Self> {
        drop(self);
        kill_process(getpid(), Signal::TSTP)?;
        Screen::open()
    }

    fn draw(&mut self, view: &View) -> io::Result<()> {
        self.0.draw(|frame| screen::draw(frame, view)).map(|_| ())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// The signals that end the command.
struct Signals([unix::Signal; 3]);

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Signals([
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
            signal(SignalKind::hangup())?,
        ]))
    }

    async fn next(&mut self) {
        let [interrupt, terminate, hang_up] = &mut self.0;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hang_up.recv() => {}
        }
    }
}
