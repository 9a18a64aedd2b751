//! Tests of the console over real connections: its access, its safety against hostile content, and the size of its pages.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
#![cfg(unix)]

#[allow(dead_code, reason = "the server's tests use the rest")]
#[path = "../../../server/tests/http/client.rs"]
mod client;
#[allow(dead_code, reason = "the tests of the program use the rest")]
#[path = "../../../cli/tests/outside/server.rs"]
mod issuer;

mod access;
mod agents;
mod answer;
mod connect;
mod content;
mod editor;
mod moments;
mod operators;
mod outside;
mod steer;

use std::{path::Path, sync::Arc};

use client::{Answer, Served, ask};
use flowcell_platform::{
    Host, HostBuilder,
    tenants::{Tenants, login},
};
use flowcell_server::{
    Limits,
    identity::{Identify, Local},
};
use serde_json::Value;

/// The header with which a browser says that a page of this server sends the request.
const OWN: (&str, &str) = ("Sec-Fetch-Site", "same-origin");
/// The media type of forms.
const FORM: (&str, &str) = ("Content-Type", "application/x-www-form-urlencoded");

/// Starts a server with the console, whose host has additional settings.
fn built(build: impl FnOnce(HostBuilder) -> HostBuilder, identity: impl FnOnce(&Host) -> Arc<dyn Identify>) -> Served {
    let folder = tempfile::tempdir().unwrap();
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache");
    let host = build(Host::builder().cache_dir(cache).instances(16).state_dir(folder.path())).build().unwrap();
    let identity = identity(&host);
    Served::with_pages(Some(flowcell_console::router), &[], host, folder, identity, Limits::default())
}

/// Starts a server with the console and without tenants.
fn local() -> Served {
    built(|builder| builder, |_| Arc::new(Local))
}

/// Starts a server with the console and the tenants `a` and `b`.
fn with_tenants() -> Served {
    built(|builder| builder, tenants)
}

/// Creates the tenants `a` and `b`.
fn tenants(host: &Host) -> Arc<dyn Identify> {
    let tenants = Tenants::of(host);
    ["a", "b"].into_iter().for_each(|name| tenants.create(name).unwrap());
    Arc::new(tenants)
}

/// Returns the value of a hidden field of a page, as a browser would send it.
fn hidden(page: &str, name: &str) -> String {
    let (_, rest) = page.split_once(&format!(r#"name="{name}" value=""#)).unwrap_or_else(|| panic!("{name}: {page}"));
    decoded(rest.split('"').next().unwrap())
}

/// Returns a text of a page without its numeric references of characters.
fn decoded(mut rest: &str) -> String {
    let mut text = String::new();
    while let Some((before, after)) = rest.split_once("&#") {
        let (code, after) = after.split_once(';').unwrap();
        text.push_str(before);
        text.push(char::from_u32(code.parse().unwrap()).unwrap());
        rest = after;
    }
    text + rest
}

/// Returns a text as the value of a member of a form.
fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// Logs in with a form of the console, and returns the cookie.
fn cookie(served: &Served, proof: &str) -> String {
    let answer = post(served, "/console/login", &[OWN], &format!("proof={proof}"));
    assert_eq!((answer.status, answer.header("location")), (303, Some("/console")), "{answer:?}");
    answer.header("set-cookie").unwrap().split(';').next().unwrap().to_owned()
}

/// Logs in as a tenant with these scopes.
fn cookie_of(served: &Served, tenant: &str, scopes: &[&str]) -> String {
    let scopes: Vec<_> = scopes.iter().map(|scope| (*scope).to_owned()).collect();
    cookie(served, &login::create_code(&Tenants::of(&served.host()), tenant, &scopes).unwrap())
}

/// Sends a form.
fn post(served: &Served, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
    ask(served.address, "POST", path, &[headers, &[FORM]].concat(), body)
}

/// Stores a flow without tenants.
fn store(served: &Served, flow: &Value) {
    let stored = served.post("/v1/flows", &serde_json::json!({ "flow": flow }));
    assert_eq!(stored.status, 201, "{stored:?}");
}
