//! Random values in expressions.

use std::collections::BTreeSet;

use flowcell_expr::{Binding, CapturedKind, Condition, Json, NoRoots, RANDOM, Roots, Strict, limits::WORK, metered};

fn seeded(seed: &str) -> Json {
    Json::object([(RANDOM, Json::from(seed)), ("n", Json::from(6_u64)), ("empty", Json::Null)])
}

fn render(value: &str, roots: &dyn Roots) -> Json {
    let binding = Binding::compile(&Json::parse(value).unwrap()).map_err(|errors| format!("{value}: {errors:?}"));
    binding.unwrap().render(roots).unwrap_or_else(|error| panic!("{value}: {error}"))
}

fn evaluate(source: &str, roots: &dyn Roots) -> Result<Json, String> {
    let binding = Binding::expression(source).map_err(|errors| errors[0].to_string())?;
    binding.render(roots).map_err(|error| error.to_string())
}

/// Each place of a value has values of its own, and each seed has others. An evaluation with the same seed repeats them.
#[test]
fn values_follow_from_the_seed_and_the_place() {
    let value = r#"{
        "a": "{{ uuid() }}", "b": "{{ uuid() }}", "c": ["{{ uuid() }}", "{{ uuid() }}"], "a/b": "{{ uuid() }}",
        "d": "{{ [uuid(), uuid()] | join(' ') }}", "e": "{{ uuid() }} {{ uuid() }}", "f": { "a": "{{ uuid() }}" }
    }"#;
    let texts = |json: &Json| json.to_text().replace(|sign: char| !"0123456789abcdef-".contains(sign), " ");
    let uuids = |seed: &str| -> Vec<String> {
        let text = texts(&render(value, &seeded(seed)));
        text.split(' ').filter(|part| part.len() == 36).map(str::to_owned).collect()
    };
    let (first, again, other) = (uuids("s"), uuids("s"), uuids("t"));
    assert_eq!((first.len(), &first), (10, &again));
    assert_eq!(first.iter().chain(&other).collect::<BTreeSet<_>>().len(), 20);
    for uuid in &first {
        let parts: Vec<&str> = uuid.split('-').collect();
        assert_eq!(parts.iter().map(|part| part.len()).collect::<Vec<_>>(), [8, 4, 4, 4, 12], "{uuid}");
        assert!(parts[2].starts_with('4') && parts[3].starts_with(['8', '9', 'a', 'b']), "{uuid}");
    }
    // The values are the same in each version of Flowcell: a run may begin in one version and go on in another.
    assert_eq!(first[0], "7edc7e78-9938-4f8f-92ad-178dd9de4836");
    assert_eq!(evaluate("shuffle([1, 2, 3, 4, 5])", &seeded("s")).unwrap().to_text(), "[5,3,1,4,2]");
    assert_eq!(evaluate("[random(), random(1000)]", &seeded("s")).unwrap().to_text(), "[0.23335809377370864,221]");
}

#[test]
fn conditions_have_places_of_their_own() {
    let terms = |count: usize| Json::array((0..count).map(|_| Json::from("random() < 0.5")));
    let tosses: BTreeSet<_> = (0..64)
        .map(|seed| {
            let holds = |condition: Json| Condition::compile(&condition).unwrap().evaluate(&seeded(&seed.to_string()));
            let both = holds(Json::object([("and", terms(2))])).unwrap();
            let any = holds(Json::object([("or", terms(2))])).unwrap();
            let operand = Json::parse(r#"{ "gt": { "var": "n", "value": "{{ random(12) }}" } }"#).unwrap();
            (both, any, holds(operand).unwrap())
        })
        .collect();
    // Both terms would agree if they shared a place.
    assert!(tosses.iter().any(|(both, any, _)| both != any), "{tosses:?}");
    assert!(tosses.iter().any(|toss| toss.2) && tosses.iter().any(|toss| !toss.2), "{tosses:?}");
}

#[test]
fn numbers_stay_in_their_range() {
    let mut seen = BTreeSet::new();
    for seed in 0..500 {
        let roots = seeded(&seed.to_string());
        let fraction = evaluate("random()", &roots).unwrap().as_f64().unwrap();
        assert!((0.0..1.0).contains(&fraction), "{fraction}");
        seen.insert(evaluate("random(n)", &roots).unwrap().as_u64().unwrap());
        assert_eq!(evaluate("random(1)", &roots), Ok(Json::from(0_u64)));
        let large = evaluate("random(9007199254740992)", &roots).unwrap().as_u64().unwrap();
        assert!(large < 1 << 53, "{large}");
        let order = evaluate("shuffle(range(20))", &roots).unwrap();
        let mut sorted: Vec<u64> = order.as_array().unwrap().iter().map(|item| item.as_u64().unwrap()).collect();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..20).collect::<Vec<_>>());
    }
    assert_eq!(seen, (0..6).collect());
    assert_eq!(evaluate("shuffle([])", &seeded("")).unwrap().to_text(), "[]");
}

#[test]
fn wrong_arguments_are_refused() {
    let rows = [
        ("random(0)", "from 1 to 2^53, not 0"),
        ("random(-1)", "from 1 to 2^53, not -1"),
        ("random(1.5)", "from 1 to 2^53, not 1.5"),
        ("random(9007199254740993)", "not 9007199254740993"),
        ("random('6')", "not a text"),
        ("random(true)", "not a boolean"),
        ("random(empty)", "`random` does not work on null"),
        ("random([1])", "not a list"),
        ("random(1, 6)", "does not take these arguments"),
        ("random(below=6)", "does not take these arguments"),
        ("shuffle()", "does not take these arguments"),
        ("shuffle('abc')", "`shuffle` needs a list, not a text"),
        ("shuffle(empty)", "`shuffle` does not work on null"),
        ("shuffle({})", "not an object"),
        ("[[1, 2]] | map('shuffle')", "unknown filter"),
        // The seed is there only for calls that the compiler has seen, and each has a place of its own.
        ("[1, 2] | map('_uuid', 7)", "unknown filter `_uuid`"),
        ("[1, 2] | shuffle", "unknown filter `shuffle`"),
        ("[1] | _shuffle(1)", "unknown filter `_shuffle`"),
        ("uuid", ""),
    ];
    for (source, message) in rows {
        match evaluate(source, &seeded("s")) {
            // A name without a call is a path.
            Ok(value) => assert!(source == "uuid" && value.is_null(), "{source}: {value:?}"),
            Err(error) => assert!(error.contains(message), "{source}: {error}"),
        }
    }
}

/// Where there is no seed, an expression fails. It is never folded into a constant when it is compiled.
#[test]
fn without_a_seed_there_are_no_values() {
    for source in ["uuid()", "random()", "random(6)", "shuffle([1, 2])", "'a' ~ uuid()"] {
        for error in [evaluate(source, &NoRoots), evaluate(source, &Strict(NoRoots))] {
            let error = error.unwrap_err();
            assert!(error.contains("works only in the inputs, conditions and outputs of a flow"), "{source}: {error}");
        }
    }
    // No value of a flow can take the place of the seed.
    let forged = Json::object([("random", Json::from("s")), ("_random", Json::from("s"))]);
    assert!(evaluate("uuid()", &forged).is_err());
    let reads = Binding::expression("uuid()").unwrap().path_uses();
    assert_eq!((reads.len(), reads[0].path.root(), reads[0].bytes.clone()), (1, RANDOM, Some(0..6)));
}

/// A component evaluates such fields, perhaps for each item, and would get the same value each time.
#[test]
fn fields_that_nodes_evaluate_are_refused() {
    let rows = [
        (CapturedKind::Template, r#"{ "id": "{{ uuid() }}", "n": "{{ item }}" }"#, "/id", 3..9),
        (CapturedKind::Expr, r#""item > random()""#, "", 7..15),
        (CapturedKind::Expr, r#"{ "equals": { "var": "item", "value": "{{ random(6) }}" } }"#, "/equals/value", 3..12),
    ];
    for (kind, field, pointer, bytes) in rows {
        let errors = Binding::captured(kind, Json::parse(field).unwrap(), &["item".into()]).unwrap_err();
        assert_eq!((errors.len(), errors[0].pointer.as_str(), errors[0].offset.clone()), (1, pointer, Some(bytes)));
        assert!(errors[0].message.contains("the node evaluates this field itself"), "{field}: {}", errors[0]);
    }
}

#[test]
fn the_work_is_bounded() {
    let roots = seeded("s");
    let work = metered(u64::MAX - 1, || evaluate("shuffle(range(10000)) | length", &roots)).work;
    assert!(work >= 320_000, "{work}");
    let huge = metered(u64::MAX - 1, || evaluate("shuffle(range(900000)) | length", &roots));
    assert!(huge.result.unwrap_err().contains("too much work") && huge.work <= 4 * WORK as u64);
}
