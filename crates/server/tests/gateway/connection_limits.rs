//! Many connections: more than descriptors, and ten thousand idle ones.

use std::process::Command;

use super::*;

/// Runs an ignored test in a process of its own with a limit on open files.
fn run_alone(test: &str, files: u32) {
    let limited = format!("ulimit -S -n {files} && exec \"$0\" \"$@\"");
    let output = Command::new("sh")
        .args(["-c", &limited])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--ignored", "--nocapture"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{errors}");
    assert!(text.contains("1 passed"), "{text}{errors}");
}

#[test]
fn a_gateway_recovers_from_running_out_of_files() {
    run_alone("connection_limits::out_of_files", 96);
}

#[tokio::test]
#[ignore = "needs a process of its own with few files"]
async fn out_of_files() {
    let gateway = Running::start(proxy_to(hello().await), admit_all()).await;
    let address = gateway.address;
    assert_eq!(get(&http1(), &gateway.url("/")).await.0, 200);
    // Nothing is accepted while this thread is busy: the clients use up all descriptors.
    let mut clients = Vec::new();
    while let Ok(client) = std::net::TcpStream::connect(address) {
        clients.push(client);
    }
    assert!(clients.len() > 20, "{}", clients.len());
    // Several accepts fail.
    tokio::time::sleep(Duration::from_millis(100)).await;
    clients.truncate(2);
    let close = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    assert!(gateway.raw(close).await.ends_with("hello"));
    assert_eq!(gateway.stop().await.unwrap(), DrainReport { aborted: 0 });
}

/// The hard limit on open files.
fn max_files() -> u32 {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    let hard = line.and_then(|line| line.split_whitespace().nth(4)?.parse().ok());
    hard.unwrap_or(1024).min(1 << 20)
}

#[test]
fn ten_thousand_idle_connections_do_no_harm() {
    // Both ends of every connection are in one process: the soft limit is raised to the hard one.
    run_alone("connection_limits::ten_thousand_idle", max_files());
}

#[tokio::test]
#[ignore = "needs a process of its own with many files"]
async fn ten_thousand_idle() {
    // Fewer only if the limit does not allow two descriptors for each.
    let many = 10_000.min(max_files() as usize / 2 - 100);
    let mut settings = proxy_to(hello().await);
    settings.timeouts.header = TIMEOUT;
    settings.limits.connections_per_client = 0;
    let gateway = Running::start(settings, admit_all()).await;
    let mut idle = Vec::with_capacity(many);
    for i in 0..many {
        idle.push(gateway.connect().await);
        if i % 100 == 0 {
            // The accept queue is bounded.
            tokio::task::yield_now().await;
        }
    }
    let client = http1();
    for _ in 0..100 {
        assert_eq!(get(&client, &gateway.url("/")).await.0, 200);
    }
    // They still serve requests.
    for stream in idle.iter_mut().step_by(many / 100) {
        stream
            .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            .await
            .unwrap();
        let mut status = [0; 12];
        stream.read_exact(&mut status).await.unwrap();
        assert_eq!(&status, b"HTTP/1.1 200");
    }
    println!("{many} idle connections");
}
