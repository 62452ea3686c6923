//! Real upstreams and proxies, where it matters what such a server makes of a request.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

use tallygate_testkit::program::{self, Program};
use tallygate_testkit::{poll, ports};

use super::{Server, TIMEOUT, TempDir};

/// A real server, killed on drop.
pub(crate) struct RealServer {
    pub(crate) address: SocketAddr,
    files: TempDir,
    program: Program,
}

impl RealServer {
    /// Python without packages, on a free port, whose number the script prints first.
    pub(crate) fn python(script: &str) -> Self {
        Self::script(&program::python3(), script)
    }

    /// Python with uvicorn.
    pub(crate) fn uvicorn(script: &str) -> Self {
        Self::script(&program::python("fastapi"), script)
    }

    /// Node, with a module.
    pub(crate) fn node(script: &str) -> Self {
        Self::script(Path::new("/usr/bin/node"), script)
    }

    fn script(interpreter: &Path, script: &str) -> Self {
        let files = TempDir::new();
        let path = files.write("server.mjs", script);
        let mut program = Program::start(interpreter, |_| vec![path]);
        let port = poll::first(TIMEOUT, || {
            assert!(program.is_running(), "{}", program.log());
            let log = program.log();
            let (port, _) = log.split_once('\n')?;
            port.parse::<u16>().ok()
        });
        RealServer {
            address: ([127, 0, 0, 1], port.expect("it prints its port")).into(),
            files,
            program,
        }
    }

    /// nginx with these servers, in which `{address}` is where they listen.
    pub(crate) fn nginx(servers: &str) -> Self {
        let address: SocketAddr = ([127, 0, 0, 1], ports::free()).into();
        let config = format!(
            "daemon off; master_process off; pid nginx.pid; error_log stderr; events {{}}\n\
             http {{ access_log off; client_body_temp_path body; proxy_temp_path proxy; \
             fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;\n{} }}\n",
            servers.replace("{address}", &address.to_string())
        );
        Self::listening(&program::nginx(), address, |folder| {
            fs::write(folder.join("nginx.conf"), config).unwrap();
            let folder = folder.to_str().unwrap();
            let args = ["-p", folder, "-c", "nginx.conf", "-e", "stderr"];
            args.map(str::to_owned).to_vec()
        })
    }

    /// HAProxy with this configuration, in which `{address}` is where it listens.
    pub(crate) fn haproxy(config: &str) -> Self {
        let address: SocketAddr = ([127, 0, 0, 1], ports::free()).into();
        let config = config.replace("{address}", &address.to_string());
        Self::listening(&program::haproxy(), address, |folder| {
            let path = folder.join("haproxy.cfg");
            fs::write(&path, config).unwrap();
            vec![
                "-db".to_owned(),
                "-f".to_owned(),
                path.to_str().unwrap().to_owned(),
            ]
        })
    }

    fn listening(
        program: &Path,
        address: SocketAddr,
        arguments: impl FnOnce(&Path) -> Vec<String>,
    ) -> Self {
        let mut program = Program::start(program, arguments);
        poll::until(TIMEOUT, "it listens", || {
            assert!(program.is_running(), "{}", program.log());
            TcpStream::connect(address).is_ok()
        });
        RealServer {
            address,
            files: TempDir::new(),
            program,
        }
    }

    pub(crate) fn log(&self) -> String {
        self.program.log()
    }

    /// Starts a gateway with these rules (YAML) in front of it.
    pub(crate) fn gateway(&self, rules: &str) -> Server {
        let config = self.files.write("rules.yaml", rules);
        let url = format!("http://{}", self.address);
        let gateway = ["--gateway", "127.0.0.1:0", "--upstream", &url];
        Server::start(&[&["--config", &config][..], &gateway].concat())
    }
}
