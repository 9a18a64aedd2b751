//! Text that the lexer rejects is an error at every position; it never ends an expression silently.

use flowcell_expr::{Binding, CapturedKind, Condition, ExprError, Json, NoRoots};
use proptest::prelude::*;

/// Tokens of valid expressions, with single quotes only.
const VALID: [&[&str]; 12] = [
    &["a", "==", "'bug'"],
    &["a", "==", "'bug'", "and", "b", "==", "'high'"],
    &["'x'"],
    &["'x'", "if", "a", "==", "'bug'", "else", "'y'"],
    &["[", "'a'", ",", "'b'", "]"],
    &["{", "'k'", ":", "'v'", "}"],
    &["a", "|", "join", "(", "', '", ",", "attribute", "=", "'n'", ")"],
    &["a", "is", "matches", "(", "'^x'", ")"],
    &["a", "[", "'k'", "]", ".", "b"],
    &["1", "+", "2"],
    &["not", "a", "in", "(", "'x'", ",", "'y'", ")"],
    &["a", "~", "'x'"],
];

/// Texts that are not tokens. An extra quote is never closed.
const JUNK: [&str; 18] =
    ["&", "&&", ";", "#", "!", "$", "$json", "^", "\\", "?", "? 1 : 2", "@", "`", "“", "ß", "\u{200b}", "'", "\""];

/// Compiles a source in every context that accepts an expression.
fn compile_everywhere(source: &str) -> Vec<(&'static str, Result<Json, Vec<ExprError>>)> {
    let text = Json::from(source);
    let braced = Json::from(format!("{{{{ {source} }}}}"));
    let operand = Json::object([("var", Json::from("a")), ("value", braced.clone())]);
    let binding = |compiled: Result<Binding, Vec<ExprError>>| {
        compiled.map(|binding| binding.render(&NoRoots).unwrap_or_default())
    };
    let condition = |compiled: Result<Condition, Vec<ExprError>>| {
        compiled.map(|condition| condition.evaluate(&NoRoots).unwrap_or_default().into())
    };
    vec![
        ("expression", binding(Binding::expression(source))),
        ("binding", binding(Binding::compile(&braced))),
        ("part of a text", binding(Binding::compile(&Json::from(format!("x {{{{ {source} }}}} y"))))),
        ("captured condition", binding(Binding::captured(CapturedKind::Expr, text.clone(), &[]))),
        ("captured template", binding(Binding::captured(CapturedKind::Template, braced.clone(), &[]))),
        ("condition", condition(Condition::compile(&text))),
        ("braced condition", condition(Condition::compile(&braced))),
        ("term", condition(Condition::compile(&Json::object([("and", Json::array([text]))])))),
        ("operand", condition(Condition::compile(&Json::object([("equals", operand)])))),
    ]
}

fn check_refused(source: &str) -> Result<(), TestCaseError> {
    for (way, result) in compile_everywhere(source) {
        prop_assert!(result.is_err(), "{} as {} gives {:?}", source, way, result);
    }
    Ok(())
}

#[test]
fn valid_expressions_compile_everywhere() {
    for tokens in VALID {
        for (way, result) in compile_everywhere(&tokens.join(" ")) {
            assert!(result.is_ok(), "{tokens:?} as {way}: {result:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn junk_after_a_valid_prefix_is_an_error(
        tokens in prop::sample::select(VALID.to_vec()),
        junk in prop::sample::select(JUNK.to_vec()),
        space in prop::sample::select(vec!["", " ", "\n\t"]),
        rest in "[a-z0-9 .|~+-]{0,12}",
    ) {
        check_refused(&format!("{}{space}{junk}{rest}", tokens.join(" ")))?;
    }

    #[test]
    fn junk_in_the_middle_is_an_error(
        tokens in prop::sample::select(VALID.to_vec()),
        junk in prop::sample::select(JUNK.to_vec()),
        at in any::<prop::sample::Index>(),
    ) {
        let mut tokens = tokens.to_vec();
        tokens.insert(at.index(tokens.len() + 1), junk);
        check_refused(&tokens.join(" "))?;
    }

    /// Parentheses around a source force the parser to read it to its end.
    #[test]
    fn sources_that_compile_are_read_to_their_end(
        prefix in prop::sample::select(vec!["", "'x' ", "a == 'x' ", "['x'] ", "a ~ \"x\" "]),
        rest in r#"[ -~äß“\n]{0,12}"#,
    ) {
        let source = format!("{prefix}{rest}");
        prop_assume!(!source.contains("{{"));
        if let Ok(binding) = Binding::expression(&source) {
            let whole = Binding::expression(&format!("({source})"));
            let whole = whole.map_err(|errors| TestCaseError::fail(format!("{source}: {errors:?}")))?;
            prop_assert_eq!(binding.render(&NoRoots).ok(), whole.render(&NoRoots).ok(), "{}", source);
        }
    }
}
