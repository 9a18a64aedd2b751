//! The cache of compiled code: the engine uses an entry only if it is complete and this user's engine wrote it.
//! Otherwise it compiles the code again.

use std::{fs, path::Path};

use flowcell_contract::{Step, StepResult};
use flowcell_engine::Config;

use crate::support::{attempt, engine, run};

async fn run_with(dir: &Path) -> StepResult {
    let (engine, pack) = engine(Config { cache_dir: Some(dir.to_owned()), ..Config::default() });
    engine.prepare(&pack.digest).unwrap();
    run(&engine, attempt(&pack, "hostile.echo", "{}")).await.0
}

fn entries(dir: &Path) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let paths = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let code = paths.filter(|path| path.extension().is_some_and(|extension| extension == "code"));
    code.map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

#[tokio::test]
async fn n28_code_is_cached_and_damaged_code_is_compiled_again() {
    let dir = tempfile::tempdir().unwrap();
    let done = |result| matches!(result, Ok(Step::Done(_)));
    assert!(done(run_with(dir.path()).await));
    let [(path, whole)] = entries(dir.path()).try_into().unwrap();
    assert!(whole.len() > 100 << 10);
    let damage: [fn(&mut Vec<u8>); 5] = [
        |code| code.truncate(1000),
        |code| code.clear(),
        |code| code[40] ^= 1,
        |code| *code.last_mut().unwrap() ^= 1,
        |code| {
            code.drain(..32);
        },
    ];
    for damage in damage {
        let mut code = whole.clone();
        damage(&mut code);
        fs::write(&path, &code).unwrap();
        assert!(done(run_with(dir.path()).await));
        assert_eq!(fs::read(&path).unwrap().len(), whole.len());
    }
}

#[tokio::test]
async fn cached_code_is_not_written_again() {
    let dir = tempfile::tempdir().unwrap();
    run_with(dir.path()).await.unwrap();
    let written = fs::metadata(&entries(dir.path())[0].0).unwrap().modified().unwrap();
    run_with(dir.path()).await.unwrap();
    assert_eq!(fs::metadata(&entries(dir.path())[0].0).unwrap().modified().unwrap(), written);
}

#[tokio::test]
async fn code_is_compiled_if_the_cache_cannot_be_opened() {
    let file = tempfile::NamedTempFile::new().unwrap();
    run_with(file.path()).await.unwrap();
}

#[tokio::test]
async fn properties_of_a_pack_are_cached_and_verified() {
    let dir = tempfile::tempdir().unwrap();
    let config = || Config { cache_dir: Some(dir.path().to_owned()), ..Config::default() };
    let (_, first) = engine(config());
    let facts = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
    let path = facts.into_iter().find(|path| path.extension().is_some_and(|extension| extension == "facts")).unwrap();
    let same = |manifest: &flowcell_contract::Manifest| {
        let first = &first.manifest;
        assert_eq!(serde_json::to_value(manifest).unwrap(), serde_json::to_value(first).unwrap());
        for (node, other) in manifest.nodes.iter().zip(&first.nodes) {
            assert_eq!((&node.version, &node.pack, &node.marks), (&other.version, &other.pack, &other.marks));
        }
    };
    same(&engine(config()).1.manifest);

    let text = String::from_utf8_lossy(&fs::read(&path).unwrap()).replace("hostile.echo", "hostile.evil");
    fs::write(&path, text).unwrap();
    same(&engine(config()).1.manifest);
}
