//! Hostile expressions end in an error or a small result within a bounded time.

use std::sync::Arc;

use flowcell_expr::{Binding, Condition, Json, json::SizeError, limits};

fn roots() -> Json {
    let long: Arc<str> = "a".repeat(limits::TEXT_BYTES / 2).into();
    let items = Json::array((0..100_000_u64).map(Json::from));
    let words = Json::array((0..2_000).map(|_| Json::from(long.clone())));
    Json::object([
        ("long", Json::from(long)),
        ("items", items),
        ("words", words),
        ("n", Json::from(1_000_000_000_u64)),
        ("text", Json::from("a".repeat(200_000) + "!")),
    ])
}

/// Tests the attacks Y5 and Y6: expressions that create huge values or run long. Each case has a part of the first
/// error's message, or an empty text if the expression may succeed.
#[test]
fn y5_y6_no_expression_grows_without_end() {
    let roots = roots();
    let nested = format!("{}n{}", "(".repeat(5_000), ")".repeat(5_000));
    let brackets = format!("{}{}", "[".repeat(40), "]".repeat(40));
    let cases: Vec<(String, &str)> = vec![
        ("'x' * 10 ** 9".into(), "longer than"),
        ("'x' * n".into(), "longer than"),
        ("long * 3".into(), "longer than"),
        ("long ~ long ~ long".into(), "longer than"),
        ("long + long + long".into(), "longer than"),
        ("[0] * n".into(), "does not work"),
        ("items | join(long)".into(), "longer than"),
        ("long | replace('a', long)".into(), "longer than"),
        ("long | replace('', 'b')".into(), "needs a text to find"),
        ("'a\nb' | indent(n)".into(), "longer than"),
        ("words | tojson".into(), "longer than"),
        ("words | string".into(), "longer than"),
        ("words | map('upper') | list".into(), "too much work"),
        ("items | slice(n) | list".into(), "`slice` creates more than 10000 lists"),
        ("[1] | batch(n, 0) | list".into(), "`batch` fills up the last list with more than 10000 items"),
        ("[1] | batch(n) | list".into(), ""),
        ("range(20000) | batch(15000, 0) | length".into(), ""),
        ("range(20000) | batch(20001, 0) | length".into(), ""),
        ("range(1) | batch(10002, 0) | length".into(), "`batch` fills up the last list"),
        ("[[1]] | map('batch', n, 0) | list".into(), "more than"),
        ("items | select('in', items) | list".into(), "too much work"),
        ("items | map('sort') | list".into(), "cannot convert"),
        ("items | map('_concat', 1) | list".into(), "unknown filter `_concat`"),
        ("items | map('uper') | list".into(), "unknown filter `uper`"),
        ("items | reject('_cmp') | list".into(), "unknown test `_cmp`"),
        ("items | selectattr('a', '_cmp', 1) | list".into(), "unknown test `_cmp`"),
        ("items | sort | reverse | list".into(), ""),
        ("text is matches('(a+)+$')".into(), ""),
        ("text is matches('(a|a)*b')".into(), ""),
        ("text is matches('((a{99}){99}){99}')".into(), "not valid"),
        (format!("text is matches('{}')", "a".repeat(2_000)), "longer than"),
        (format!("text is matches({})", "long"), "longer than"),
        ("long is matches('(a?){50}b')".into(), "too long for this pattern"),
        ("words | select('matches', 'a') | list".into(), "too much work"),
        ("10 ** 10 ** 10 ** 10".into(), "unable to calculate"),
        ("9 ** 99 + n".into(), "unable to calculate"),
        ("range(n)".into(), "too much work"),
        ("long.upper()".into(), "no methods"),
        ("debug()".into(), "unknown function"),
        ("self.x()".into(), "no methods"),
        ("long | format(1)".into(), "unknown filter"),
        ("long | safe".into(), "unknown filter"),
        ("long | _mul(2)".into(), "unknown filter"),
        ("n is filter".into(), "unknown test"),
        (nested, "nested deeper"),
        (brackets, "nested deeper"),
        (format!("{}n", "not ".repeat(400)), "nested deeper"),
        (format!("{}n", "-".repeat(400)), "nested deeper"),
        (format!("n{}", " if n else n".repeat(100)), "nested deeper"),
        (format!("n{}", "[n".repeat(200)), "nested deeper"),
        (format!("n{}", " + n".repeat(10_000)), "longer than"),
        (format!("n{}", "+n".repeat(2_000)), "tokens"),
        (format!("n{}", ".a".repeat(2_000)), "tokens"),
        (format!("n{}", "|abs".repeat(600)), "tokens"),
    ];
    for (source, expected) in cases {
        let shown: String = source.chars().take(60).collect();
        let result = match Binding::expression(&source) {
            Ok(binding) => binding.render(&roots),
            Err(errors) => Err(errors.into_iter().next().unwrap()),
        };
        match result {
            Ok(_) => assert_eq!(expected, "", "{shown} succeeds"),
            Err(error) => assert!(error.message.contains(expected) && !expected.is_empty(), "{shown}: {error}"),
        }
    }
}

/// The largest allowed expressions fit on the stack, for every operator.
#[test]
fn the_largest_expressions_are_evaluated() {
    let roots = Json::object([("n", Json::from(1_u64)), ("o", Json::object([("a", Json::from(1_u64))]))]);
    let chains = [
        ("n", "+n", 499),
        ("n", "-n", 499),
        ("n", "~n", 499),
        ("n", " and n", 499),
        ("n", "<n", 499),
        ("n", "|abs", 499),
        ("n", ".a", 499),
        ("o", "['a']", 300),
        ("n", "-n+n", 60),
        ("n", "==n", 499),
        ("n", ",n", 0),
    ];
    for (first, more, times) in chains {
        let source = format!("{first}{}", more.repeat(times));
        Binding::expression(&source).unwrap().render(&roots).unwrap_or_else(|error| panic!("{more}: {error}"));
    }
    for (open, close) in [("(", ")"), ("[", "]"), ("{'a':", "}"), ("o[", "]"), ("n|default(", ")"), ("-(", ")")] {
        let depth = limits::NESTING / 2;
        let source = format!("{}n{}", open.repeat(depth), close.repeat(depth));
        Binding::expression(&source).unwrap().render(&roots).unwrap_or_else(|error| panic!("{open}: {error}"));
    }
}

#[test]
fn conditions_have_size_limits() {
    let test = Json::parse(r#"{ "equals": { "var": "a", "value": 1 } }"#).unwrap();
    let many = |count: usize| Json::object([("or", Json::array((0..count).map(|_| test.clone())))]);
    assert!(Condition::compile(&many(999)).is_ok());
    let errors = Condition::compile(&many(10_000)).unwrap_err();
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(errors[0].message.contains("more than 1000 operators"));

    let deep = |depth: usize| (0..depth).fold(test.clone(), |inner, _| Json::object([("not", inner)]));
    assert!(Condition::compile(&deep(64)).is_ok());
    assert!(Condition::compile(&deep(65)).unwrap_err()[0].message.contains("nested deeper"));
    assert!(Binding::compile(&(0..1_000).fold(Json::Null, |inner, _| Json::array([inner]))).is_err());
}

#[test]
fn conditions_have_a_search_limit() {
    let test = Json::parse(r#"{ "matches": { "var": "text", "pattern": "(a+)+z" } }"#).unwrap();
    let many = Json::object([("or", Json::array((0..900).map(|_| test.clone())))]);
    let error = Condition::compile(&many).unwrap().evaluate(&roots()).unwrap_err();
    assert!(error.message.contains("searches too much text"), "{error}");
}

/// Values are never evaluated as expressions.
#[test]
fn values_are_not_evaluated() {
    let evil = "{{ secret }} ${secret} {% for i in range(10**9) %} {{ evil }}";
    let roots = Json::object([("evil", Json::from(evil)), ("secret", Json::from("s3cret"))]);
    for (source, expected) in
        [("{{ evil }}", evil.to_owned()), ("<{{ evil }}>", format!("<{evil}>")), ("{{ evil ~ '' }}", evil.to_owned())]
    {
        assert_eq!(Binding::compile(&Json::from(source)).unwrap().render(&roots).unwrap(), Json::from(expected));
    }
    let condition = Json::parse(r#"{ "equals": { "var": "evil", "value": "{{ evil }}" } }"#).unwrap();
    assert!(Condition::compile(&condition).unwrap().evaluate(&roots).unwrap());
    assert_eq!(Binding::literal(Json::from("{{ secret }}")).render(&roots).unwrap(), Json::from("{{ secret }}"));
}

/// An expression that returns an existing list or object returns the same reference, not a copy.
#[test]
fn values_are_not_copied() {
    let roots = roots();
    for source in ["{{ items }}", "{{ items if n else 0 }}", "{{ items | default(0) }}", "{{ [items] | first }}"] {
        let value = Binding::compile(&Json::from(source)).unwrap().render(&roots).unwrap();
        let (Json::Array(before), Json::Array(after)) = (roots.get("items").unwrap(), &value) else {
            panic!("{source}")
        };
        assert!(Arc::ptr_eq(before, after), "{source}");
    }
}

#[test]
fn values_are_measured_as_text() {
    let text = r#"{"a":[1,true,null,"xyz"],"b":{}}"#;
    let size = Json::parse(text).unwrap().measure(1_000).unwrap() as usize;
    assert!(size.abs_diff(text.len()) < 24, "{size} for {text}");
    // Thirty lists, each containing the previous one twice: a billion values as text.
    let doubled = (0..30).fold(Json::from("x"), |inner, _| Json::array([inner.clone(), inner]));
    assert_eq!(doubled.measure(1 << 20), Err(SizeError::Bytes(1 << 20)));
    assert_eq!(doubled.measure(1 << 20).unwrap_err().to_string(), "is larger than 1 MiB");
}

#[test]
fn values_and_texts_have_the_same_depth_limit() {
    let nested = |depth| (0..depth).fold(Json::Null, |inner, _| Json::array([inner]));
    for (depth, fits) in [(limits::JSON_DEPTH, true), (limits::JSON_DEPTH + 1, false)] {
        let text = "[".repeat(depth) + "null" + &"]".repeat(depth);
        assert_eq!(Json::parse(&text).is_ok(), fits, "{depth}");
        assert_eq!(nested(depth).measure(1 << 20).is_ok(), fits, "{depth}");
    }
    assert_eq!(nested(1_000).measure(1 << 20), Err(SizeError::Depth));
}

/// A flow may have thousands of expressions that read nothing and have a large result.
#[test]
fn large_results_of_constants_are_computed_with_each_rendering() {
    let compile = |length: usize| {
        let text = format!("{{{{ 'x' | padstart({length}) }}}}");
        Binding::compile(&Json::from(text)).unwrap()
    };
    // The quotes count.
    let longest = limits::FOLDED_BYTES - 2;
    assert!(compile(longest).is_literal() && !compile(longest + 1).is_literal());
    // Shared texts are measured without writing them: this result would have 10 GB of text.
    let shared = Json::from("{{ [1] | batch(10000, 'x' | padstart(1000000)) }}");
    assert!(!Binding::compile(&shared).unwrap().is_literal());
    let rendered = compile(limits::TEXT_BYTES).render(&Json::object::<&str>([])).unwrap();
    assert_eq!(rendered.as_str().map(str::len), Some(limits::TEXT_BYTES));
}
