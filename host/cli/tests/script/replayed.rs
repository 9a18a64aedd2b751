//! A script whose process is killed continues with the same random numbers and times.

use std::{fs, process::Stdio};

use serde_json::{Value, json};

use crate::{
    kit::{flowcell, output_of, stderr, stdout},
    services::fake::{Fake, Reply},
};

/// Draws random numbers, sends them to the endpoint, and waits for the response, twice.
const DRAWS: &str = "
const draw = () => ({ random: Math.random(), uuid: fn.uuid(), now: Date.now(), date: new Date().toISOString() });

export async function run(services, facts) {
  const drawn = [{ ...draw(), facts }];
  for (let i = 0; i < 2; i++) {
    await services.img(null, JSON.stringify(drawn.at(-1)));
    drawn.push(draw());
  }
  return drawn;
}
";

#[test]
fn a_killed_script_draws_the_same_numbers_again() {
    let fake = Fake::start(|_, before| match before {
        // The process is killed while it waits for the second response.
        1 => Reply::Silence,
        _ => Reply::Image(flowcell_services::images::sample([1, 2, 3])),
    });
    let folder = tempfile::tempdir().unwrap();
    let setting = json!({ "img": { "images": { "baseUrl": format!("http://{}/v1", fake.address), "auth": "none",
        "allowPrivate": [fake.address.to_string()] } } });
    fs::write(folder.path().join("services.yaml"), setting.to_string()).unwrap();
    fs::write(folder.path().join("draws.flow.js"), DRAWS).unwrap();
    let run = ["run", "draws.flow.js", "--run-id", "r", "--quiet", "--services", "services.yaml"];
    let mut child = flowcell(folder.path()).args(run).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    while fake.seen().len() < 2 {
        assert!(child.try_wait().unwrap().is_none(), "it ends before it is killed");
        std::thread::yield_now();
    }
    child.kill().unwrap();
    child.wait().unwrap();

    let resumed = output_of(folder.path(), &["runs", "resume", "r", "--json", "--services", "services.yaml"]);
    assert!(resumed.status.success(), "{}", stderr(&resumed));
    let ended: Value = serde_json::from_str(&stdout(&resumed)).unwrap();
    let drawn = ended["result"].as_array().unwrap();
    let told: Vec<Value> = fake.seen().iter().map(|seen| serde_json::from_str(&seen.prompt()).unwrap()).collect();
    let [first, second, again] = told.as_slice() else { panic!("{told:?}") };
    assert_eq!((&drawn[0], &drawn[1]), (first, second), "it goes on with what it had");
    assert_eq!(again, second, "the call that was under way is the same call");
    let member = |name: &str| drawn.iter().map(|drawn| &drawn[name]).collect::<Vec<_>>();
    let now = member("now");
    for random in [member("random"), member("uuid")] {
        assert!(random[0] != random[1] && random[1] != random[2] && random[0] != random[2], "{random:?}");
    }
    assert_eq!(drawn[0]["facts"]["run"]["id"], "r");
    assert!(now.is_sorted_by_key(|now| now.as_u64()) && now[0].as_u64() > Some(1_600_000_000_000), "{now:?}");
}
