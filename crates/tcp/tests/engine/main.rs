//! The engine's behaviour, rule by rule, as timelines; and under random treatment.

#[macro_use]
mod scene;

mod close;
mod handshake;
mod hostile;
mod keep_alive;
mod link;
mod loss;
mod passive;
mod path_mtu;
mod receive;
mod sending;
mod validity;
