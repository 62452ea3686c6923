//! `tallygate top` in a real terminal, in a pipe, and with servers that go away.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};

use serde_json::{Value, json};

use super::terminal::Terminal;
use super::{Server, TempDir, tallygate};

/// Rejects most of these logins, and none of the others.
fn drive(server: &Server) {
    for _ in 0..12 {
        let attributes = json!({"ip": "192.0.2.1", "method": "POST", "path": "/login"});
        server.check(&json!({"rule": "login", "attributes": attributes}).to_string());
    }
    let attributes = json!({"ip": "192.0.2.9", "path": "/api/x", "headers": {"x-api-key": "k"}});
    server.check(&json!({"rule": "api", "attributes": attributes}).to_string());
}

fn url(admin: SocketAddr) -> String {
    format!("http://{admin}")
}

/// Runs `top` in a shell that says when it has ended, and how the terminal is then.
fn top(columns: u16, rows: u16, admin: SocketAddr) -> Terminal {
    let program = env!("CARGO_BIN_EXE_tallygate");
    let script = format!(
        "echo before; {program} top --url {}; echo \"exit $?\"; stty -a | tr ';' '\\n'; sleep 60",
        url(admin)
    );
    let mut command = Command::new("sh");
    command.args(["-c", &script]);
    Terminal::start(columns, rows, &command)
}

/// Waits for the end of `top` and asserts that the terminal is as it was.
#[track_caller]
fn assert_restored(terminal: &Terminal, code: i32) -> String {
    let text = terminal.wait_for(&format!("exit {code}"));
    assert!(text.contains("before"), "{text}");
    assert!(!text.contains("Rules,"), "{text}");
    let text = terminal.wait_for("echok");
    for mode in ["icanon", "isig", "echo"] {
        assert!(
            text.split_whitespace().any(|word| word == mode),
            "{mode}: {text}"
        );
    }
    text
}

fn once(args: &[&str], admin: SocketAddr) -> Output {
    let address = url(admin);
    let command = ["top", "--once", "--url", &address];
    tallygate(&[&command, args].concat()).output().unwrap()
}

#[test]
fn the_terminal_shows_rules_keys_and_the_store() {
    let server = Server::start(&[]);
    let terminal = top(110, 30, server.admin);
    terminal.wait_for("no requests; try: curl -i");
    drive(&server);
    let text = terminal.wait_for("api, as header x-api-key");
    for shown in [
        "Tallygate 0.",
        "live",
        "memory  breaker closed",
        "keys 1",
        "admitted",
        "refused",
        "login",
        "sliding-window-log 5/min",
        "Most refused keys",
        "Most frequent keys",
        "no rule",
    ] {
        assert!(text.contains(shown), "{shown}: {text}");
    }
    let login = text.lines().find(|line| line.starts_with("login"));
    assert!(login.unwrap().trim_end().ends_with("12"), "{text}");
    assert!(!text.contains("192.0.2"), "{text}");
    // Sorts by the next columns: name, admitted, refused.
    terminal.press(&["s", "s", "s"]);
    terminal.wait_for("Rules, refused");
    terminal.press(&["r"]);
    terminal.wait_for("Rules, refused, reversed");
    // Filters by what is typed, letter by letter.
    terminal.press(&["/", "l", "o", "g", "q"]);
    terminal.wait_for("filter: logq_");
    terminal.press(&["BSpace"]);
    terminal.wait_without("token-bucket 10/s");
    terminal.press(&["Enter"]);
    let text = terminal.wait_for("(Esc clears)");
    assert!(text.contains("sliding-window-log 5/min"), "{text}");
    terminal.press(&["Escape"]);
    terminal.wait_for("token-bucket 10/s");
    terminal.press(&["?"]);
    terminal.wait_for("sort the rules by the next");
    terminal.press(&["?"]);
    terminal.wait_without("sort the rules by the next");
    terminal.press(&["p"]);
    terminal.wait_for("paused");
    terminal.press(&["p", "Tab", "j", "k", "End", "Home"]);
    terminal.wait_without("paused");
    terminal.press(&["q"]);
    assert_restored(&terminal, 0);
}

#[test]
fn forty_columns_are_enough() {
    let server = Server::start(&[]);
    let terminal = top(40, 24, server.admin);
    terminal.wait_for("Rules,");
    drive(&server);
    let text = terminal.wait_for("#");
    for shown in [
        "live",
        "breaker closed",
        "p99",
        "login",
        "api",
        "adm/s",
        "ref/s",
        "total",
        "q quit",
    ] {
        assert!(text.contains(shown), "{shown}: {text}");
    }
    let key = text.lines().find(|line| line.starts_with('#')).unwrap();
    assert!(
        key.trim_end().ends_with('7') && key.contains("login"),
        "{text}"
    );
    terminal.press(&["C-c"]);
    assert_restored(&terminal, 0);
}

#[test]
fn a_small_terminal_shows_the_list_in_focus() {
    let server = Server::start(&[]);
    drive(&server);
    let terminal = top(60, 8, server.admin);
    terminal.wait_for("login");
    terminal.press(&["Tab"]);
    terminal.wait_for("Most refused keys");
    terminal.press(&["Tab"]);
    terminal.wait_for("Most frequent keys");
    terminal.press(&["q"]);
    assert_restored(&terminal, 0);
}

#[test]
fn a_signal_restores_the_terminal() {
    for signal in ["-TERM", "-INT", "-HUP"] {
        let server = Server::start(&[]);
        let terminal = top(80, 24, server.admin);
        terminal.wait_for("Rules,");
        let pattern = format!("top --url {}", url(server.admin));
        // The program, not the shell around it.
        let found = Command::new("pgrep").args(["-n", "-f", &pattern]).output();
        let id = String::from_utf8(found.unwrap().stdout).unwrap();
        let sent = Command::new("kill").args([signal, id.trim()]).status();
        assert!(sent.unwrap().success());
        assert_restored(&terminal, 0);
    }
}

/// Starts a server with this admin address.
fn restart(admin: SocketAddr) -> Child {
    let admin = admin.to_string();
    let mut child = tallygate(&["serve", "--listen", "127.0.0.1:0", "--admin", &admin])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let stdout = child.stdout.take().unwrap();
    BufReader::new(stdout).read_line(&mut line).unwrap();
    assert!(line.contains("admin"), "{line}");
    child
}

#[test]
fn a_server_that_restarts_is_found_again_and_what_was_shown_stays() {
    let mut server = Server::start(&[]);
    let terminal = top(100, 24, server.admin);
    drive(&server);
    terminal.wait_for("api, as header");
    server.signal("-TERM");
    server.wait();
    let text = terminal.wait_for("shown is from");
    assert!(
        text.contains("lost") && text.contains("api, as header"),
        "{text}"
    );
    let mut second = restart(server.admin);
    let text = terminal.wait_without("lost");
    assert!(text.contains("live"), "{text}");
    terminal.wait_without("api, as header");
    // It waits for a server that is not there yet, too.
    second.kill().unwrap();
    second.wait().unwrap();
    let early = top(100, 24, server.admin);
    early.wait_for("Is the server running?");
    let mut third = restart(server.admin);
    early.wait_for("Rules,");
    early.press(&["q"]);
    assert_restored(&early, 0);
    third.kill().unwrap();
    third.wait().unwrap();
}

#[test]
fn off_a_terminal_the_output_is_plain() {
    let server = Server::start(&[]);
    drive(&server);
    let output = once(&[], server.admin);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!text.contains('\x1b'), "{text}");
    let head = "RULE     ADMITTED/S  REFUSED/S  WOULD REFUSE/S  DELAYED/S  DEGRADED/S  TOTAL\n";
    assert!(text.contains(head), "{text}");
    let login = text.lines().find(|line| line.starts_with("login"));
    assert!(login.unwrap().ends_with(" 12"), "{text}");
    for shown in [
        "store memory  breaker closed",
        "MOST REFUSED KEY",
        "MOST FREQUENT KEY",
        "no rule",
    ] {
        assert!(text.contains(shown), "{shown}: {text}");
    }
    let output = once(&["--json"], server.admin);
    let event: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(event["store"]["kind"], "memory");
    // Without --once it goes on, until nobody reads.
    let address = url(server.admin);
    let mut child = tallygate(&["top", "--json", "--url", &address])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for _ in 0..2 {
        let event: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        assert!(event["t_ms"].is_u64());
    }
    drop(lines);
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_token_is_needed_where_the_server_needs_one() {
    let token = "0123456789abcdef";
    let server = Server::start_with_env(&[], &[("TALLYGATE_ADMIN_TOKEN", token)]);
    let folder = TempDir::new();
    let file = folder.write("token", &format!("{token}\n"));
    // From this machine none is needed, and one does no harm.
    assert!(once(&[], server.admin).status.success());
    assert!(
        once(&["--admin-token-file", &file], server.admin)
            .status
            .success()
    );
    let output = once(&["--admin-token-file", "/no/such/file"], server.admin);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

/// A proxy that says whom it forwards for, so that the server takes nobody for local. One request for
/// each connection.
fn proxy(admin: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (mut client, mut server) = (client.unwrap(), TcpStream::connect(admin).unwrap());
            std::thread::spawn(move || {
                let mut from_client = BufReader::new(client.try_clone().unwrap());
                let mut line = String::new();
                from_client.read_line(&mut line).unwrap();
                let head = format!("{line}x-forwarded-for: 192.0.2.1\r\n");
                server.write_all(head.as_bytes()).unwrap();
                let mut to_server = server.try_clone().unwrap();
                std::thread::spawn(move || io::copy(&mut from_client, &mut to_server));
                let _ = io::copy(&mut server, &mut client);
                let _ = client.shutdown(Shutdown::Both);
            });
        }
    });
    address
}

#[test]
fn without_the_token_or_with_a_wrong_one_it_ends_and_says_so() {
    let token = "0123456789abcdef";
    let server = Server::start_with_env(&[], &[("TALLYGATE_ADMIN_TOKEN", token)]);
    let remote = proxy(server.admin);
    let folder = TempDir::new();
    let failed = |args: &[&str], expected: &str| {
        let output = once(args, remote);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(stderr.contains(expected), "{stderr}");
        assert!(!stderr.contains("fedcba"), "{stderr}");
    };
    failed(
        &[],
        "needs the admin token: set TALLYGATE_ADMIN_TOKEN or --admin-token-file",
    );
    let wrong = folder.write("wrong", "fedcba9876543210");
    failed(
        &["--admin-token-file", &wrong],
        "does not accept this admin token",
    );
    let right = folder.write("right", token);
    let output = once(&["--admin-token-file", &right], remote);
    assert!(output.status.success(), "{output:?}");
    let output = tallygate(&["top", "--once", "--url", &url(remote)])
        .env("TALLYGATE_ADMIN_TOKEN", token)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    // In a terminal too: it is restored, and the reason stays.
    let terminal = top(100, 24, remote);
    assert!(assert_restored(&terminal, 1).contains("needs the admin token"));
}

#[test]
fn ctrl_z_suspends_it_and_fg_continues() {
    let server = Server::start(&[]);
    let mut shell = Command::new("bash");
    shell.args(["--norc", "--noprofile", "-i"]).env("PS1", "$ ");
    let terminal = Terminal::start(100, 30, &shell);
    terminal.wait_for("$");
    let program = env!("CARGO_BIN_EXE_tallygate");
    let line = format!("{program} top --url {}", url(server.admin));
    terminal.press(&[&line, "Enter"]);
    terminal.wait_for("Rules,");
    terminal.press(&["C-z"]);
    let text = terminal.wait_for("Stopped");
    assert!(!text.contains("Rules,"), "{text}");
    // The terminal is the shell's.
    let modes = "echo modes $(stty -a | grep -ow -e icanon -e isig -e echo)";
    terminal.press(&[modes, "Enter"]);
    terminal.wait_for("modes isig icanon echo");
    drive(&server);
    terminal.press(&["fg", "Enter"]);
    terminal.wait_for("api, as header x-api-key");
    terminal.press(&["q"]);
    terminal.wait_without("Rules,");
    terminal.press(&["echo \"exit $?\"", "Enter"]);
    terminal.wait_for("exit 0");
}

#[test]
fn what_is_not_a_server_is_an_error() {
    let server = Server::start(&[]);
    let failed = |output: Output, code: i32, expected: &str| {
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{stderr}");
        assert!(stderr.contains(expected), "{stderr}");
    };
    failed(
        once(&[], server.api),
        1,
        "is not the admin listener of a Tallygate server",
    );
    let output = tallygate(&["top", "--once", "--url", "ftp://x"])
        .output()
        .unwrap();
    failed(
        output,
        2,
        "is not the URL of a server, such as http://127.0.0.1:8090",
    );
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = nobody.local_addr().unwrap();
    drop(nobody);
    failed(once(&[], address), 1, "cannot read http://127.0.0.1:");
    // One that accepts and says something else.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let garbage = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 1024]);
        let _ = stream.write_all(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\ndata: {\"x\":1}\n\ndata: {}\n\n",
        );
    });
    failed(once(&[], address), 1, "another format of events");
    garbage.join().unwrap();
}
