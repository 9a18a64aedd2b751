//! The attempts of a task before each event of its run: those that a journal without the later events has.

use flowcell_runtime::{RunStatus, inputs::Window};

use super::{Changed, Process, WHOLE, flow};

#[test]
fn attempts_before_an_event_are_those_of_a_journal_that_ends_there() {
    let process = Process::new(&flow(
        "  - { id: a, type: t.flaky, input: { x: '{{ flow.input.n }}' }, policy: { retry: { maxAttempts: 2 } } }
  - { id: l, type: t.each, input: { list: [1, 2] }, body: { nodes: [{ id: i, type: t.noop, input: { at: '{{ l.item }}' } }] } }
  - { id: g, type: t.ask, input: { x: '{{ a.x }}' } }
  - { id: never, type: t.noop, when: 'false', input: {} }",
        "{ from: a, to: l }, { from: l, to: g }, { from: a, to: never }",
    ));
    assert_eq!(process.run("r"), RunStatus::Parked);
    assert_eq!(process.resume("r", "g"), RunStatus::Succeeded);
    let units = process.journal.read(&"local".into(), &"r".into(), 0, usize::MAX).unwrap();
    let all = units.last().unwrap().next_seq();
    assert!(units.iter().any(|unit| unit.facts.len() > 1), "an event may lie in the middle of a unit");
    let mut seen = 0;
    for end in 0..=all + 1 {
        let cut = Changed::before(&*process.journal, "r", end);
        for task in ["a", "l", "l[1].i", "g", "never"] {
            let shown = process.inputs(&*process.journal, "r", task, Window { end, ..WHOLE });
            let expected = process.inputs(&cut, "r", task, WHOLE);
            assert_eq!(serde_json::to_value(&shown).unwrap(), serde_json::to_value(&expected).unwrap(), "{task} {end}");
            assert_eq!(shown.missing(), expected.missing(), "{task} {end}");
            seen += shown.attempts.len();
        }
    }
    assert!(seen > all as usize, "{seen}");
    // An attempt runs until the event with its end.
    let ended = |end: u64| {
        let shown = process.inputs(&*process.journal, "r", "a", Window { end, ..WHOLE });
        shown.attempts.first().map(|attempt| attempt.status)
    };
    let states: Vec<_> = (0..=all).map(ended).collect();
    let first = |status| states.iter().position(|state| *state == status).unwrap();
    assert!(first(None) == 0 && first(Some("running")) < first(Some("retried")), "{states:?}");
    assert!(states[first(Some("retried"))..].iter().all(|state| *state == Some("retried")), "{states:?}");
}
