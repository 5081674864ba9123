//! Proof that packets cross a wire: exchanges over it, and what its ends counted meanwhile.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::time::Duration;

use serde::Serialize;

use crate::cable::Cable;
use crate::error::WireError;
use crate::state::packets;

/// Number of exchanges that prove it.
const EXCHANGES: u64 = 100;

/// Proof that packets cross the cable: what each end counted while an exchange was made over it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Crossing {
    /// Exchanges of 64 B each way.
    pub exchanges: u64,
    /// Packets that the client's end sent and received meanwhile.
    pub client: [u64; 2],
    /// Packets that the server's end sent and received.
    pub server: [u64; 2],
}

impl Crossing {
    /// Every exchange crossed, and what one end sent the other received.
    #[must_use]
    pub fn holds(&self) -> bool {
        let ([client_out, client_in], [server_out, server_in]) = (self.client, self.server);
        client_out >= self.exchanges
            && server_out >= self.exchanges
            && client_out == server_in
            && server_out == client_in
    }
}

impl Crossing {
    /// Makes exchanges over a cable and counts the packets that its ends see.
    pub(crate) fn over(cable: &Cable) -> Result<Self, WireError> {
        let before = [packets(&cable.client)?, packets(&cable.server)?];
        exchange(cable, EXCHANGES)?;
        let after = [packets(&cable.client)?, packets(&cable.server)?];
        let of = |end: usize| [0, 1].map(|way| after[end][way] - before[end][way]);
        Ok(Self { exchanges: EXCHANGES, client: of(0), server: of(1) })
    }
}

/// Makes exchanges of 64 B each way over a cable.
fn exchange(cable: &Cable, count: u64) -> Result<(), WireError> {
    let io = |what: &'static str| move |source| WireError::Io { what: what.to_owned(), source };
    const PATIENCE: Duration = Duration::from_secs(5);
    let address: IpAddr = cable.server.address;
    let listener = cable.server.namespace.run(|| TcpListener::bind((address, 0)).map_err(io("listening")))?;
    let port = listener.local_addr().map_err(io("listening"))?.port();
    let answers = std::thread::spawn(move || -> std::io::Result<()> {
        let (mut stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut bytes = [0; 64];
        for _ in 0..count {
            stream.read_exact(&mut bytes)?;
            stream.write_all(&bytes)?;
        }
        Ok(())
    });
    let asked = cable.client.namespace.run(|| {
        let what = "an exchange over the wire";
        let mut stream = TcpStream::connect_timeout(&(address, port).into(), PATIENCE).map_err(io(what))?;
        stream.set_nodelay(true).map_err(io(what))?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(io(what))?;
        let mut bytes = [0; 64];
        for _ in 0..count {
            stream.write_all(&bytes).map_err(io(what))?;
            stream.read_exact(&mut bytes).map_err(io(what))?;
        }
        Ok(())
    });
    asked?;
    match answers.join() {
        Ok(Ok(())) => Ok(()),
        Ok(Err(source)) => Err(WireError::Io { what: "an exchange over the wire".into(), source }),
        Err(_) => {
            let source = std::io::Error::other("the thread panicked");
            Err(WireError::Io { what: "an exchange over the wire".into(), source })
        }
    }
}
