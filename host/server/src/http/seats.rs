//! The open connections, counted by client address.
//!
//! One address cannot take all connections, so that other addresses can still connect. If no connection is free, a new
//! one may close an older one that has no request in progress. A seat is the permit for one connection.

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
    sync::Arc,
};

use parking_lot::Mutex;
use tokio::sync::Notify;

/// Maximum number of connections of one address that wait for the head of a request. Above it, a new connection of the
/// address closes the address's connection that has waited longest. Addresses of trusted proxies have no such limit.
pub(crate) const MAX_WAITING: usize = 1_024;

/// The permits for connections. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Seats(Arc<Mutex<Table>>);

struct Table {
    max_connections: usize,
    open: usize,
    /// A counter that orders the connections by the time at which they began to wait.
    clock: u64,
    by: HashMap<IpAddr, AddressConnections>,
}

#[derive(Default)]
struct AddressConnections {
    open: usize,
    /// The connections that wait for the head of a request, by the value of [`Table::clock`] at which they began to
    /// wait.
    waiting: BTreeMap<u64, Arc<Notify>>,
}

/// The permit of one connection. Dropping it frees the permit.
pub(crate) struct Seat {
    seats: Seats,
    address: IpAddr,
    closes: Arc<Notify>,
    state: Mutex<State>,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    /// The connection waits for the head of a request since this value of [`Table::clock`].
    Waiting(u64),
    /// The connection has this many requests whose answers are not completely sent.
    Busy(usize),
    /// The connection is closed, because its permit was given to another one.
    Closed,
}

/// A request that is being answered on a connection. It is dropped once its answer is sent.
pub(crate) struct Busy(Arc<Seat>);

impl Seats {
    pub(crate) fn new(max_connections: usize) -> Seats {
        Seats(Arc::new(Mutex::new(Table { max_connections, open: 0, clock: 0, by: HashMap::new() })))
    }

    /// Takes a permit for a new connection from `address`. If the address has as many connections as it may have,
    /// closes one of them and takes its permit. Otherwise, if no permit is free, does the same with the address that
    /// has the most waiting connections. In both cases closes the connection that has waited longest for a request.
    /// Returns `None` if all connections of that address are busy.
    ///
    /// `is_shared` is true for the address of a trusted proxy, which many callers use. Such an address may take all
    /// free permits.
    pub(crate) fn take(&self, address: IpAddr, is_shared: bool) -> Option<Arc<Seat>> {
        let address = counted_address(address);
        let closes = Arc::new(Notify::new());
        let since = self.0.lock().take(address, is_shared, &closes)?;
        let state = Mutex::new(State::Waiting(since));
        Some(Arc::new(Seat { seats: self.clone(), address, closes, state }))
    }
}

/// Returns the address for which the limits count. An IPv6 address becomes its /64 network, since one caller usually
/// has all of it.
pub(crate) fn counted_address(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((u128::from(address) >> 64 << 64).into()),
        address => address,
    }
}

impl Table {
    fn take(&mut self, address: IpAddr, is_shared: bool, closes: &Arc<Notify>) -> Option<u64> {
        let own = self.by.get(&address);
        let (held, waiting) = own.map_or((0, 0), |own| (own.open, own.waiting.len()));
        // An address that has connections already gets another one only while, with the new one, at least as many
        // permits stay free as the address holds. An address without connections may take the last permit.
        let left = self.max_connections.saturating_sub(self.open + 1);
        let is_over = !is_shared && (waiting >= MAX_WAITING || held > 0 && held + 1 > left);
        if is_over {
            self.close_oldest(address)?;
        } else if self.open >= self.max_connections {
            let (most, _) = self.by.iter().max_by_key(|(_, of)| of.waiting.len())?;
            self.close_oldest(*most)?;
        }
        self.open += 1;
        let since = self.tick();
        let own = self.by.entry(address).or_default();
        own.open += 1;
        own.waiting.insert(since, closes.clone());
        Some(since)
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Closes the connection that has waited longest of all connections of an address. Returns `None` if all
    /// connections of the address are busy.
    fn close_oldest(&mut self, address: IpAddr) -> Option<()> {
        let (_, closes) = self.by.get_mut(&address)?.waiting.pop_first()?;
        self.leave(address);
        closes.notify_one();
        Some(())
    }

    fn leave(&mut self, address: IpAddr) {
        self.open = self.open.saturating_sub(1);
        if let Some(own) = self.by.get_mut(&address) {
            own.open = own.open.saturating_sub(1);
            if own.open == 0 {
                self.by.remove(&address);
            }
        }
    }
}

impl Seat {
    /// Waits until the permit is given to another connection.
    pub(crate) async fn wait_until_closed(&self) {
        self.closes.notified().await;
    }

    /// Marks the connection as busy when the head of a request has arrived. Returns `None` if the connection is closed,
    /// because its permit was given to another connection.
    pub(crate) fn begin(self: &Arc<Seat>) -> Option<Busy> {
        let mut table = self.seats.0.lock();
        let mut state = self.state.lock();
        *state = match *state {
            State::Closed => return None,
            State::Busy(requests) => State::Busy(requests + 1),
            State::Waiting(since) => match table.by.get_mut(&self.address).and_then(|own| own.waiting.remove(&since)) {
                Some(_) => State::Busy(1),
                None => {
                    *state = State::Closed;
                    return None;
                }
            },
        };
        Some(Busy(self.clone()))
    }
}

impl Drop for Busy {
    /// Marks the connection as waiting again if no other request on it is being answered.
    fn drop(&mut self) {
        let seat = &self.0;
        let mut table = seat.seats.0.lock();
        let mut state = seat.state.lock();
        *state = match *state {
            State::Busy(requests) if requests > 1 => State::Busy(requests - 1),
            State::Busy(_) => {
                let since = table.tick();
                if let Some(own) = table.by.get_mut(&seat.address) {
                    own.waiting.insert(since, seat.closes.clone());
                }
                State::Waiting(since)
            }
            other => other,
        };
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut table = self.seats.0.lock();
        let held = match *self.state.lock() {
            State::Waiting(since) => {
                table.by.get_mut(&self.address).is_some_and(|own| own.waiting.remove(&since).is_some())
            }
            State::Busy(_) => true,
            State::Closed => false,
        };
        if held {
            table.leave(self.address);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use futures_util::FutureExt;

    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    /// Opens connections from one address, each with a request, until the next one is refused.
    fn fill_with_busy(seats: &Seats, from: u8) -> Vec<Busy> {
        std::iter::from_fn(|| seats.take(address(from), false)?.begin()).collect()
    }

    fn is_closed(seat: &Seat) -> bool {
        seat.wait_until_closed().now_or_never().is_some()
    }

    #[test]
    fn h4_one_address_leaves_connections_to_others() {
        let seats = Seats::new(1_000);
        let taken: Vec<_> = (1..=3).map(|from| fill_with_busy(&seats, from)).collect();
        assert_eq!(taken.iter().map(Vec::len).collect::<Vec<_>>(), [500, 250, 125]);
        assert!(seats.take(address(9), false).is_some(), "who comes next finds a place");
        assert!(seats.take(address(1), true).is_some(), "a proxy may have what there is");
    }

    #[test]
    fn h4_a_new_connection_closes_a_waiting_one_but_no_busy_one() {
        let seats = Seats::new(3);
        let idle: Vec<_> = (0..2).map(|_| seats.take(address(1), true).unwrap()).collect();
        let busy = seats.take(address(1), true).unwrap();
        let answering = busy.begin().unwrap();
        let first = seats.take(address(2), false).unwrap();
        assert_eq!([is_closed(&idle[0]), is_closed(&idle[1]), is_closed(&busy)], [true, false, false]);
        assert!(idle[0].begin().is_none(), "a head that comes too late is not answered");
        let asked = first.begin();
        let _second = seats.take(address(3), false).unwrap();
        assert!(is_closed(&idle[1]));
        drop(answering);
        let third = seats.take(address(4), false).unwrap();
        assert!(third.begin().is_some());
        drop((asked, idle, busy));
    }

    #[test]
    fn dropped_seats_free_their_permits() {
        let seats = Seats::new(8);
        for _ in 0..3 {
            let taken = fill_with_busy(&seats, 1);
            let waiting: Vec<_> = (2..5).filter_map(|from| seats.take(address(from), false)).collect();
            assert!(!taken.is_empty() && !waiting.is_empty());
            drop((taken, waiting));
        }
        let table = seats.0.lock();
        assert!(table.by.values().all(|own| own.waiting.len() <= own.open), "{}", table.open);
    }

    #[test]
    fn h4_waiting_connections_of_one_address_are_bounded() {
        let seats = Seats::new(8 * MAX_WAITING);
        let heads: Vec<_> = (0..MAX_WAITING + 10).map(|_| seats.take(address(1), false).unwrap()).collect();
        assert_eq!(heads.iter().filter(|head| is_closed(head)).count(), 10);
        assert!(is_closed(&heads[9]) || heads[9].begin().is_none(), "those that waited longest");
        assert!(heads[10].begin().is_some());
    }

    #[test]
    fn an_ipv6_network_counts_as_one_address() {
        let of = |text: &str| counted_address(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
    }
}
