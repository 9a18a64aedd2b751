//! Answers that a guest reads in chunks: the calls behind them, and replies of a host that is wrong.

use std::sync::{Arc, Mutex};

use flowcell_contract::{BlobRef, Call, Calls, Failure, Json, NodeRunner, Step, Value, code};
use flowcell_engine::Config;
use futures_util::{FutureExt, future::BoxFuture};

use crate::support::{attempt, engine};

/// Replies to `open-stream` in turn, and to reads of the stream `sN` with the chunks of the N-th script.
#[derive(Default)]
struct Streams {
    opened: Mutex<usize>,
    read: Mutex<[usize; 10]>,
    calls: Mutex<Vec<String>>,
}

/// The replies of the reads of each stream; none are left after the last. The streams after them have whole bodies.
const SCRIPTS: [&[&str]; 5] = [
    &[
        r#"{"offset":0,"size":2,"sha256":"x","text":"ü"}"#,
        r#"{"offset":2,"size":1,"sha256":"x","hex":"ff"}"#,
        r#"{"offset":3,"size":3,"sha256":"x","file":{"kind":"file","fileId":"f","size":3}}"#,
        r#"{"offset":6,"end":true}"#,
    ],
    &[r#"{"offset":1,"size":1,"text":"a"}"#],
    &[r#"{"offset":0,"size":2,"text":"a"}"#],
    &[r#"{"offset":0,"size":0,"text":""}"#],
    &[r#"{"offset":0,"size":1,"hex":"0g"}"#],
];

impl Streams {
    fn reply(&self, call: &Call) -> Result<Value, Failure> {
        self.calls.lock().unwrap().push(format!("{} {}", call.function, call.args));
        let value = |text: &str| Ok(Value::parse(text).unwrap());
        match &*call.function {
            "open-stream" => {
                let mut opened = self.opened.lock().unwrap();
                *opened += 1;
                match *opened {
                    number @ 1..=5 => value(&format!(r#"{{"status":200,"headers":[],"stream":"s{number}"}}"#)),
                    6 => value(r#"{"status":201,"headers":[["a","b"]],"body":{"text":"whole"}}"#),
                    7 => value(r#"{"status":202,"body":{"file":{"kind":"file","fileId":"f","size":70000}}}"#),
                    8 => value(r#"{"status":204,"headers":[]}"#),
                    _ => value(r#"{"status":200,"headers":[],"stream":"s9","once":true}"#),
                }
            }
            "read-stream" => {
                let id = call.args.json().get("stream").and_then(Json::as_str).unwrap();
                let number = id[1..].parse::<usize>().unwrap();
                let mut read = self.read.lock().unwrap();
                let at = read[number];
                read[number] += 1;
                value(SCRIPTS[number - 1][at])
            }
            _ => Ok(Value::null()),
        }
    }
}

impl Calls for Streams {
    fn call(&self, call: Call) -> BoxFuture<'_, Result<Value, Failure>> {
        let reply = self.reply(&call);
        async { reply }.boxed()
    }

    fn keep(&self, bytes: Arc<[u8]>, mime: &str) -> Result<BlobRef, Failure> {
        Ok(BlobRef { file_id: "kept".into(), size: bytes.len() as u64, mime: mime.into() })
    }

    fn bytes(&self, file: &BlobRef) -> Result<Arc<[u8]>, Failure> {
        Ok(vec![1; file.size as usize].into())
    }
}

#[tokio::test]
async fn streams_are_read_by_calls_and_wrong_replies_are_failures() {
    let (engine, pack) = engine(Config::default());
    let calls = Arc::new(Streams::default());
    let result = engine.run(attempt(&pack, "hostile.streams", "{}"), calls.clone()).await;
    let expected = r#"["limit_exceeded","1 200 2 1 3 end","2 200 lost_worker","3 200 lost_worker","4 200 lost_worker",
        "5 200 lost_worker","6 201 5 end","7 202 65536 4464 end","8 204 end","invalid_input","invalid_input",
        "invalid_input","invalid_input"]"#;
    assert_eq!(result, Ok(Step::Done(Value::parse(expected).unwrap())));
    let made = calls.calls.lock().unwrap();
    let opens = made.iter().filter(|call| call.starts_with("open-stream")).count();
    assert_eq!(opens, 9, "the stream that was too many made no call");
    assert!(made[0].contains(r#""totalMs":5"#) && !made[0].contains("idleMs"), "{}", made[0]);
    let reads: Vec<_> = made.iter().filter(|call| call.contains(r#""s1""#)).map(String::as_str).collect();
    let offsets = [0, 2, 3, 6].map(|offset| format!(r#"read-stream {{"stream":"s1","offset":{offset}}}"#));
    assert_eq!(reads, offsets);
    assert_eq!(made.last().unwrap(), r#"close-stream {"stream":"s9","offset":0,"once":true}"#, "it is closed once");
}

#[tokio::test]
async fn a_stream_is_denied_to_a_node_that_has_not_asked_for_http() {
    let (engine, pack) = engine(Config::default());
    let calls = Arc::new(Streams::default());
    let denied = engine.run(attempt(&pack, "hostile.streams-unasked", "{}"), calls.clone()).await.unwrap_err();
    assert!(denied.code == code::DENIED && denied.message.contains("`http`"), "{denied}");
    assert!(calls.calls.lock().unwrap().is_empty());
}
