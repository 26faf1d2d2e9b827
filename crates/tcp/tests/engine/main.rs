//! The engine's behaviour, rule by rule, as timelines; and under random treatment.

#[macro_use]
mod scene;

mod close;
mod handshake;
mod hostile;
mod link;
mod loss;
mod receive;
mod sending;
mod validity;
