//! Random flows, edits and names: a run that has moved, or is repeated, is a fresh run of the last version.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::newer::edited::{Edit, compare};

/// The names of the nodes of a draft: some of them swap their names, and some have new ones.
fn names_of(count: usize, choice: &[u8], mark: char) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for at in 0..count {
        for (kind, choice) in ["n", "i"].into_iter().zip(choice.iter().skip(at)) {
            let id = format!("{kind}{at}");
            match choice % 4 {
                0 => _ = found.insert(id, format!("{mark}_{kind}{at}")),
                // Pairs of neighbours swap their names.
                1 if kind == "n" && at % 2 == 0 && at + 1 < count => {
                    let other = format!("n{}", at + 1);
                    found.insert(other.clone(), id.clone());
                    found.insert(id, other);
                }
                _ => {}
            }
        }
    }
    // A name stands for one node.
    let mut used = HashMap::new();
    for at in 0..count {
        for id in [format!("n{at}"), format!("i{at}")] {
            *used.entry(found.get(&id).cloned().unwrap_or(id)).or_insert(0) += 1;
        }
    }
    if used.values().any(|times| *times > 1) { BTreeMap::new() } else { found }
}

/// Returns the text of a draft with these names. Half of the nodes read their sources by name.
fn text_of(draft: &Draft, names: &BTreeMap<String, String>, by_name: &[bool]) -> String {
    let mut text = String::new();
    for line in draft.text().lines() {
        let at = line.strip_prefix("  - { id: n").and_then(|rest| rest.split(',').next()?.parse::<usize>().ok());
        let node = at.filter(|at| by_name[at % by_name.len()]).and_then(|at| draft.nodes[at].as_ref());
        let line = match node {
            Some(node) => {
                let reads: Vec<_> =
                    node.edges.iter().map(|(from, _)| format!("'{{{{ inbounds.n{from} }}}}'")).collect();
                line.replace("'{{ inbounds }}'", &format!("[{}]", reads.join(", ")))
            }
            None => line.to_owned(),
        };
        text += &line;
        text.push('\n');
    }
    let is_part = |sign: char| sign.is_ascii_alphanumeric() || sign == '_';
    let mut renamed = String::new();
    for piece in text.split_inclusive(|sign| !is_part(sign)) {
        let word = piece.trim_end_matches(|sign| !is_part(sign));
        renamed += names.get(word).map_or(word, String::as_str);
        renamed += &piece[word.len()..];
    }
    renamed
}

fn has(draft: &Draft, id: &str) -> bool {
    let Ok(at) = id[1..].parse::<usize>() else { return false };
    let node = draft.nodes.get(at).and_then(Option::as_ref);
    node.is_some_and(|node| id.starts_with('n') || matches!(node.kind, Kind::Each | Kind::AskEach))
}

/// Three versions of a random flow, each an edit of the one before.
struct Versions {
    drafts: Vec<Draft>,
    /// The names of the nodes in each version.
    names: [BTreeMap<String, String>; 3],
    texts: Vec<String>,
    story: Story,
}

impl Versions {
    fn new(first: Draft, edits: [&[Edit]; 2], names: [&[u8]; 2], by_name: &[bool]) -> Versions {
        let mut drafts = vec![first];
        for edits in edits {
            let mut next = drafts[drafts.len() - 1].clone();
            edits.iter().for_each(|edit| next.apply(edit));
            drafts.push(next);
        }
        let count = drafts[0].nodes.len();
        let names = [BTreeMap::new(), names_of(count, names[0], 'x'), names_of(count, names[1], 'y')];
        let texts: Vec<_> = drafts.iter().zip(&names).map(|(draft, names)| text_of(draft, names, by_name)).collect();
        let story = Story::new(&texts.iter().map(String::as_str).collect::<Vec<_>>());
        Versions { drafts, names, texts, story }
    }
}

#[test]
fn a_renamed_run_is_a_fresh_run_of_the_other_version() {
    let (moves, named) = (AtomicU32::new(0), AtomicU32::new(0));
    let strategy = (
        (nodes(), vec(any::<bool>(), 8), vec(any::<bool>(), 8)),
        (answered(), answered()),
        (vec(edit(), 0..3), vec(edit(), 0..2)),
        (vec(any::<u8>(), 12), vec(any::<u8>(), 12)),
        0..60u32,
    );
    let config = ProptestConfig { cases: 400, ..ProptestConfig::default() };
    proptest!(config, |(((nodes, asks, by_name), (open, later), (edits, more), (one, two), dies) in strategy)| {
        let mut first = Draft { nodes: nodes.into_iter().map(Some).collect(), turn: 0, default: None };
        for (node, ask) in first.nodes.iter_mut().flatten().zip(&asks) {
            match (node.kind, ask) {
                (Kind::Noop, true) => node.kind = Kind::Ask,
                (Kind::Each, true) => node.kind = Kind::AskEach,
                _ => {}
            }
        }
        let Versions { drafts, names, texts, story } = Versions::new(first, [&edits, &more], [&one, &two], &by_name);
        let count = drafts[0].nodes.len();
        let gates = gates(count);
        let some = |chosen: &[bool]| -> Vec<String> {
            gates.iter().zip(chosen).filter(|(_, chosen)| **chosen).map(|(gate, _)| gate.clone()).collect()
        };
        let (open, later) = (some(&open), some(&later));
        let runner = FlowRunner::new(story.version(1).flow, story.world(), options("r", &refs(&open))).unwrap();
        die_after(dies, runner);
        if story.journal.find(&Tenant::local(), &"r".into()).unwrap().is_none() {
            return Ok(());
        }
        if dies % 8 > 0 {
            story.resume_with("r", &[]);
        }
        let mut version = 0;
        // The names under which nodes came into the run. They are its ids.
        let mut ids: BTreeSet<String> = gates.iter().cloned().collect();
        for next in [1, 2] {
            let name = |version: usize, id: &str| names[version].get(id).cloned().unwrap_or_else(|| id.to_owned());
            let in_both = gates.iter().filter(|id| has(&drafts[version], id) && has(&drafts[next], id));
            let pairs: Vec<_> = in_both
                .map(|id| (name(version, id), name(next, id)))
                .filter(|(old, new)| old != new)
                .map(|(old, new)| format!("{old}={new}"))
                .collect();
            let migration = story.renaming("r", next as u32 + 1, &pairs.join(" "));
            let plan = migration.plan().clone();
            let before = story.units("r");
            if plan.refused.is_empty() {
                block(migration.perform()).unwrap();
                let is_new = |id: &&String| has(&drafts[next], id) && !has(&drafts[version], id);
                ids.extend(gates.iter().filter(is_new).map(|id| name(next, id)));
                version = next;
                moves.fetch_add(1, Ordering::Relaxed);
                named.fetch_add(plan.renamed.len() as u32, Ordering::Relaxed);
                // All nodes have the ids that they began with.
                let has_id = |node: &flowcell_contract::NodeId| ids.contains(node.as_str());
                assert!(plan.kept.iter().chain(&plan.waiting).all(has_id), "{plan:?}");
            } else {
                assert!(matches!(block(migration.perform()), Err(MigrateError::Refused(_))));
                assert_eq!(story.units("r"), before);
            }
            if next == 1 {
                story.resume_with("r", &refs(&later));
            }
        }
        let done = story.resume_with("r", &refs(&gates));
        let started = story.units("r").iter().flat_map(|unit| unit.facts.clone()).filter_map(|fact| match fact {
            Fact::RunStarted { input, .. } => Some(input),
            Fact::Migrated { migration } => migration.input,
            _ => None,
        }).last().unwrap();
        let of_version: Vec<_> =
            gates.iter().map(|id| names[version].get(id).cloned().unwrap_or_else(|| id.clone())).collect();
        let given = RunOptions { input: started, ..options("fresh", &refs(&of_version)) };
        let flow = story.version(version as u32 + 1).flow;
        let fresh = block(FlowRunner::new(flow, story.world(), given).unwrap().run());
        assert_eq!((done.status, &done.outputs), (fresh.status, &fresh.outputs), "{}", texts[version]);
        story.read_back("r");
        // The ids of the run never change.
        let is_id = |address: &String| address.split(['.', '[', ']']).all(|part| {
            part.is_empty() || part.parse::<u32>().is_ok() || ids.contains(part)
        });
        assert!(story.ran("r").iter().all(is_id), "{:?}", story.ran("r"));
    });
    let (moves, named) = (moves.into_inner(), named.into_inner());
    assert!(moves > 100 && named > 100, "{moves} moves with {named} nodes that have other names");
}

#[test]
fn a_retry_with_other_names_is_a_fresh_run_of_the_other_version() {
    let (retries, named) = (AtomicU32::new(0), AtomicU32::new(0));
    let strategy = (
        (nodes(), vec(any::<bool>(), 8)),
        (vec(edit(), 0..3), vec(edit(), 0..2)),
        (vec(any::<u8>(), 12), vec(any::<u8>(), 12)),
        (any::<usize>(), 0..40u32),
    );
    let config = ProptestConfig { cases: 400, ..ProptestConfig::default() };
    proptest!(config, |(((nodes, by_name), (edits, more), (one, two), (begin, dies)) in strategy)| {
        let first = Draft { nodes: nodes.into_iter().map(Some).collect(), turn: 0, default: None };
        let Versions { drafts, names, texts: _, story } = Versions::new(first, [&edits, &more], [&one, &two], &by_name);
        let count = drafts[0].nodes.len();
        story.run(1, "r0", &[]);
        for next in [1, 2] {
            let name = |version: usize, id: &str| names[version].get(id).cloned().unwrap_or_else(|| id.to_owned());
            let ids = gates(count).into_iter().filter(|id| has(&drafts[next - 1], id) && has(&drafts[next], id));
            let pairs = ids.map(|id| (name(next - 1, &id), name(next, &id))).filter(|(old, new)| old != new);
            let renames: Renames = pairs.map(|(old, new)| (old.as_str().into(), new.as_str().into())).collect();
            let (before, run) = (format!("r{}", next - 1), format!("r{next}"));
            let repeat = Repeat { renames: renames.clone(), ..Repeat::default() };
            let version = next as u32 + 1;
            match FlowRunner::plan_retry_in(&story.world(), &before.as_str().into(), &story.version(version), &repeat) {
                Ok(plan) => named.fetch_add(plan.renamed.len() as u32, Ordering::Relaxed),
                // A name of a node that is gone, or new, is the one of another node.
                Err(OpenError::OtherNames(_)) => return Ok(()),
                Err(error) => panic!("{error}"),
            };
            compare(&story, (&before, &run), version, &renames, (begin / next, dies));
            retries.fetch_add(1, Ordering::Relaxed);
        }
    });
    let (retries, named) = (retries.into_inner(), named.into_inner());
    assert!(retries > 100 && named > 100, "{retries} retries with {named} nodes that have other names");
}
