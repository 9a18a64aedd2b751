//! Tests images over HTTP: the requests, the stored files, and both after a crash.

use std::{
    fs,
    io::{BufRead, BufReader},
    process::Stdio,
    sync::Barrier,
};

use serde_json::{Value, json};

use crate::services::{
    fake::{Fake, Reply},
    project::Project,
};

/// Returns a PNG of one pixel in this colour.
fn png(colour: u8) -> Vec<u8> {
    flowcell_services::images::sample([colour, 0, 0])
}

#[test]
fn an_image_is_made_of_a_file_and_saved() {
    let fake = Fake::start(|_, _| Reply::Image(png(2)));
    let calls = json!([{ "service": "img", "args": [["{{ flow.input.photo }}"], "Blend", { "size": "64x64" }] }]);
    let project = Project::new(&calls, &["img"], &Project::images(&fake));
    project.write("photo.png", png(1));
    let outputs = project.outputs(&["-i", "photo=@photo.png", "--out", "made"]);
    let image = &outputs["first"];
    assert_eq!(
        (&image["kind"], &image["mime"], &image["meta"]["model"]),
        (&json!("file"), &json!("image/png"), &json!("fake"))
    );
    let answer = &outputs["answers"][0];
    assert_eq!(
        (&answer["kind"], &answer["callId"], &answer["ok"]),
        (&json!("flow-service-response"), &json!("0"), &json!(true))
    );
    assert_eq!(fs::read(project.path().join("made/first.png")).unwrap(), png(2));

    let [seen] = &fake.seen()[..] else { panic!("it was asked {} times", fake.seen().len()) };
    assert_eq!((seen.path.as_str(), seen.header("authorization")), ("/v1/images/edits", "Bearer test-key"));
    let part =
        |name: &str| seen.parts().into_iter().find(|(head, _)| head.contains(&format!("name=\"{name}\""))).unwrap();
    assert_eq!(part("image").1, png(1), "the bytes of the file are what is sent");
    assert!(part("image").0.contains("content-type: image/png"));
    assert_eq!(
        (part("prompt").1, part("size").1, part("model").1),
        (b"Blend".to_vec(), b"64x64".to_vec(), b"fake".to_vec())
    );
    let events: Vec<_> = project.events().iter().map(|event| event["type"].clone()).collect();
    assert_eq!(events, ["service:call", "service:result"]);
}

#[test]
fn a_prompt_alone_is_json_and_the_image_may_be_behind_a_url() {
    let fake = Fake::start(|seen, _| match seen.path.as_str() {
        "/v1/images/generations" => Reply::Behind("/made/3.png"),
        _ => Reply::Bytes(png(3)),
    });
    let project =
        Project::new(&json!([{ "service": "img", "args": [null, "A cat"] }]), &["img"], &Project::images(&fake));
    let outputs = project.outputs(&["--out", "made"]);
    assert_eq!(outputs["first"]["mime"], "image/png");
    assert_eq!(fs::read(project.path().join("made/first.png")).unwrap(), png(3));
    let seen = fake.seen();
    let asked: Value = serde_json::from_slice(&seen[0].body).unwrap();
    assert_eq!(asked, json!({ "prompt": "A cat", "model": "fake" }));
    assert_eq!((seen[1].path.as_str(), seen[1].header("authorization")), ("/made/3.png", ""), "the key stays at home");
}

#[test]
fn calls_are_made_at_the_same_time() {
    // Answer only after both requests have arrived.
    let both = Barrier::new(2);
    let fake = Fake::start(move |seen, _| {
        both.wait();
        Reply::Image(png(seen.prompt().as_bytes()[0]))
    });
    let calls = json!([{ "service": "img", "args": [null, "a"] }, { "service": "img", "args": [null, "b"] }]);
    let project = Project::new(&calls, &["img"], &Project::images(&fake));
    project.outputs(&["--out", "made"]);
    for (number, colour) in [(1, b'a'), (2, b'b')] {
        let file = project.path().join(format!("made/answers-{number}-result.png"));
        assert_eq!(fs::read(file).unwrap(), png(colour));
    }
}

#[test]
fn a_recorded_image_is_not_made_again() {
    let fake = Fake::start(|seen, before| match (seen.prompt().as_str(), before) {
        ("fast", _) => Reply::Image(png(1)),
        (_, 0 | 1) => Reply::Silence,
        _ => Reply::Image(png(2)),
    });
    let calls = json!([{ "service": "img", "args": [null, "fast"] }, { "service": "img", "args": [null, "slow"] }]);
    let project = Project::new(&calls, &["img"], &Project::images(&fake));
    let mut child = project.command(&["--events", "-"]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let (mut called, mut ended) = (0, 0);
    // Wait for the recorded end of one call and the start of the other.
    while called < 2 || ended < 1 {
        let event: Value = serde_json::from_str(&lines.next().unwrap()).unwrap();
        called += usize::from(event["type"] == "service:call");
        ended += usize::from(event["type"] == "service:result");
    }
    // The request of the slow call has arrived.
    while fake.seen().len() < 2 {
        std::thread::yield_now();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let outputs = project.outputs(&[]);
    assert_eq!((&outputs["answers"][0]["ok"], &outputs["answers"][1]["ok"]), (&json!(true), &json!(true)));
    let asked = |prompt: &str| -> Vec<_> {
        let seen = fake.seen().into_iter().filter(|seen| seen.prompt() == prompt);
        seen.map(|seen| seen.header("idempotency-key").to_owned()).collect()
    };
    assert_eq!(asked("fast").len(), 1);
    let slow = asked("slow");
    assert_eq!((slow.len(), &slow[0]), (2, &slow[1]), "it is recognised as the same");
    assert!(!slow[0].is_empty());
}
