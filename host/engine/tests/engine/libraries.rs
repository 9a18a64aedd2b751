//! Packs with the same library share its compiled code.

use std::fs;

use flowcell_contract::Step;
use flowcell_engine::{Config, Engine};
use wasmparser::{Parser, Payload};

use crate::{
    guests::HOSTILE,
    support::{attempt, run},
};

/// Returns a section: its id, its length and its content.
fn section(id: u8, content: &[u8]) -> Vec<u8> {
    let mut section = vec![id];
    let mut length = content.len();
    while length > 127 {
        section.push(u8::try_from(length & 127).unwrap() | 128);
        length >>= 7;
    }
    section.push(u8::try_from(length).unwrap());
    section.extend(content);
    section
}

/// Returns the hostile pack with an instance of a library in it. The mark makes it another pack.
fn with_library(mark: &str) -> Vec<u8> {
    let modules = Parser::new(0).parse_all(HOSTILE.as_slice()).scan(0_usize, |depth, payload| {
        let payload = payload.unwrap();
        let counts = *depth == 0 && matches!(payload, Payload::ModuleSection { .. });
        match payload {
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => *depth += 1,
            Payload::End(_) => *depth = depth.saturating_sub(1),
            _ => {}
        }
        Some(u8::from(counts))
    });
    let index: u8 = modules.sum();
    let library = wat::parse_str(format!(
        r#"(module (@custom "dylink.0" (before first) "") (func (export "f")) (data "{}"))"#,
        "x".repeat(64 << 10)
    ));
    let mark = [&[4][..], b"mark", mark.as_bytes()].concat();
    [HOSTILE.to_vec(), section(1, &library.unwrap()), section(2, &[1, 0, index, 0]), section(0, &mark)].concat()
}

#[tokio::test]
async fn packs_share_the_code_of_a_library() {
    let dir = tempfile::tempdir().unwrap();
    let count = || {
        let paths = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
        paths.filter(|path| path.extension().is_some_and(|extension| extension == "code")).count()
    };
    let config = || Config { cache_dir: Some(dir.path().to_owned()), ..Config::default() };
    // The second engine finds the code of the first one in the cache.
    for expected in [[2, 3], [3, 3]] {
        let engine = Engine::new(config()).unwrap();
        for (mark, expected) in ["a", "b"].into_iter().zip(expected) {
            let pack = engine.add_pack(with_library(mark), "library.wasm").unwrap();
            let (result, _) = run(&engine, attempt(&pack, "hostile.echo", "{}")).await;
            assert!(matches!(result, Ok(Step::Done(_))), "{result:?}");
            assert_eq!(count(), expected, "{mark}");
        }
    }
}
