//! Paths and intrinsic functions of Amazon States Language.

use serde_json::Value;

use crate::{
    expr::{LONGEST, atom, bounded, member, quoted},
    scope::Env,
};

/// An expression for a part of the source, and the reason if it does not do exactly the same.
pub(super) struct Converted {
    pub(super) expr: String,
    pub(super) differs: Option<String>,
}

impl Converted {
    fn exact(expr: String) -> Converted {
        Converted { expr, differs: None }
    }
}

/// A step of a path.
#[derive(Clone, Debug, PartialEq)]
enum Step {
    Key(String),
    Index(i64),
    Slice(Option<i64>, Option<i64>),
    All,
}

/// The value from which a path starts.
#[derive(Debug, PartialEq)]
enum Root {
    Data,
    Context,
    Variable(String),
}

/// Maximum nesting of calls of intrinsic functions.
const DEPTH: usize = 10;

/// Parses a path such as `$.a['b c'][0]`.
fn parse(text: &str) -> Result<(Root, Vec<Step>), String> {
    let unknown = || format!("the path {} has a form that is not supported", Value::from(text));
    let rest = text.strip_prefix('$').ok_or_else(unknown)?;
    let (root, mut rest) = match rest.strip_prefix('$') {
        Some(rest) => (Root::Context, rest),
        None => {
            let length = rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(rest.len());
            let (name, rest) = rest.split_at(length);
            (if name.is_empty() { Root::Data } else { Root::Variable(name.to_owned()) }, rest)
        }
    };
    let mut steps = Vec::new();
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('.') {
            let length = after.find(['.', '[']).unwrap_or(after.len());
            let (key, after) = after.split_at(length);
            if key.is_empty() || key.contains(['(', ')', '?', '@', ' ']) {
                return Err(unknown());
            }
            steps.push(if key == "*" { Step::All } else { Step::Key(key.to_owned()) });
            rest = after;
        } else if let Some(after) = rest.strip_prefix('[') {
            let (step, after) = bracket(after).ok_or_else(unknown)?;
            steps.push(step);
            rest = after;
        } else {
            return Err(unknown());
        }
    }
    Ok((root, steps))
}

/// Parses the part of a path behind `[`. Returns the step and the text behind `]`.
fn bracket(text: &str) -> Option<(Step, &str)> {
    if let Some(quote) = text.chars().next().filter(|quote| matches!(quote, '\'' | '"')) {
        let (key, rest) = text[1..].split_once(quote)?;
        return (!key.contains('\\')).then_some((Step::Key(key.to_owned()), rest.strip_prefix(']')?));
    }
    let (inside, rest) = text.split_once(']')?;
    let number = |text: &str| if text.is_empty() { Some(None) } else { text.trim().parse().ok().map(Some) };
    let step = match inside.split_once(':') {
        _ if inside == "*" => Step::All,
        Some((from, to)) => Step::Slice(number(from)?, number(to)?),
        None => Step::Index(inside.trim().parse().ok()?),
    };
    Some((step, rest))
}

/// Converts a path to an expression.
pub(super) fn path(text: &str, env: &Env) -> Result<Converted, String> {
    let (root, steps) = parse(text)?;
    let (mut expr, mut differs, steps) = root_of(&root, &steps, env)?;
    let mut steps = steps.iter().peekable();
    while let Some(step) = steps.next() {
        expr = match step {
            Step::Key(key) => member(&expr, key),
            Step::Index(index) => format!("{}[{index}]", atom(&expr)),
            Step::Slice(from, to) => {
                let number = |number: &Option<i64>| number.map(|number| number.to_string()).unwrap_or_default();
                format!("{}[{}:{}]", atom(&expr), number(from), number(to))
            }
            Step::All => {
                let list = format!("({expr} | values if {expr} is mapping else {expr})");
                let mut keys = Vec::new();
                while let Some(Step::Key(key)) = steps.peek() {
                    keys.push(key.as_str());
                    steps.next();
                }
                if steps.peek().is_some() || keys.iter().any(|key| key.contains('.')) {
                    return Err(format!("the path {} has a form that is not supported", Value::from(text)));
                }
                match keys.is_empty() {
                    true => list,
                    false => {
                        differs = Some("items that lack the member fail here, and are left out there".into());
                        format!("({list} | map(attribute={}))", quoted(&keys.join(".")))
                    }
                }
            }
        };
        if matches!(step, Step::Slice(..)) && steps.peek().is_some() {
            return Err(format!("the path {} has a form that is not supported", Value::from(text)));
        }
        expr = bounded(expr)?;
    }
    Ok(Converted { expr, differs })
}

/// Returns the expression of the root of a path, and the steps that remain.
fn root_of<'s>(root: &Root, steps: &'s [Step], env: &Env) -> Result<(String, Option<String>, &'s [Step]), String> {
    match root {
        Root::Data => Ok((env.data.clone(), None, steps)),
        Root::Variable(name) => {
            let value = env.vars.get(name).ok_or_else(|| format!("no state assigns the variable `{name}`"))?;
            Ok((value.clone(), None, steps))
        }
        Root::Context => {
            let keys = |count: usize| {
                let keys = steps.iter().take(count).map(|step| match step {
                    Step::Key(key) if !key.contains('.') => key.as_str(),
                    _ => "",
                });
                keys.collect::<Vec<_>>().join(".")
            };
            let other = |note: &str| Some(note.to_owned());
            let (expr, differs, used) = match (keys(2).as_str(), keys(3).as_str()) {
                ("Execution.Input", _) => ("flow.input".to_owned(), None, 2),
                ("Execution.Id" | "Execution.Name", _) => {
                    ("run.id".to_owned(), other("ids of runs have another form"), 2)
                }
                ("Execution.StartTime", _) => ("run.started".to_owned(), None, 2),
                ("StateMachine.Name", _) => ("flow.name".to_owned(), other("the flow has a name of its own"), 2),
                ("State.EnteredTime", _) => ("now".to_owned(), None, 2),
                ("State.Name", _) => (quoted(&env.state), None, 2),
                (_, "Map.Item.Value") if env.item.is_some() => (env.item.clone().unwrap_or_default().0, None, 3),
                (_, "Map.Item.Index") if env.item.is_some() => (env.item.clone().unwrap_or_default().1, None, 3),
                (two, _) => return Err(format!("the context object has no counterpart of `$$.{two}`")),
            };
            Ok((expr, differs, &steps[used..]))
        }
    }
}

/// Returns an expression that tells whether the value at a path exists, also if it is null.
pub(super) fn presence(text: &str, env: &Env) -> Result<String, String> {
    let (root, steps) = parse(text)?;
    let (mut expr, _, steps) = root_of(&root, &steps, env)?;
    let mut tests = String::new();
    for step in steps {
        if !tests.is_empty() {
            tests.push_str(" and ");
        }
        let whole = format!("({expr} | default(null))");
        match step {
            Step::Key(key) => {
                tests.push_str(&format!("{whole} is mapping and {} in {expr}", quoted(key)));
                expr = member(&expr, key);
            }
            Step::Index(index) if *index >= 0 => {
                tests.push_str(&format!("{whole} is sequence and {} | length > {index}", atom(&expr)));
                expr = format!("{}[{index}]", atom(&expr));
            }
            _ => return Err(format!("the path {} has a form that is not supported", Value::from(text))),
        }
        if tests.len() > LONGEST {
            return Err("the path is too long".into());
        }
    }
    if tests.is_empty() { Ok("true".into()) } else { bounded(format!("({tests})")) }
}

/// Converts a text behind a key that ends with `.$`: a path or a call of an intrinsic function.
pub(super) fn dynamic(text: &str, env: &Env) -> Result<Converted, String> {
    let text = text.trim();
    if text.starts_with('$') {
        return path(text, env);
    }
    let mut parser = Parser { text, env, differs: None };
    let expr = parser.value(DEPTH)?;
    if !parser.text.trim().is_empty() {
        return Err(format!("unexpected text {}", Value::from(parser.text)));
    }
    Ok(Converted { expr, differs: parser.differs })
}

/// Parses calls of intrinsic functions.
struct Parser<'t> {
    text: &'t str,
    env: &'t Env,
    differs: Option<String>,
}

impl<'t> Parser<'t> {
    fn value(&mut self, depth: usize) -> Result<String, String> {
        self.text = self.text.trim_start();
        let depth = depth.checked_sub(1).ok_or("functions are nested too deep")?;
        if self.text.starts_with('\'') {
            return self.string().map(|text| quoted(&text));
        }
        if self.text.starts_with('$') {
            let converted = path(self.path_text(), self.env)?;
            self.differs = converted.differs.or(self.differs.take());
            return Ok(converted.expr);
        }
        let length = self.text.find([',', '(', ')', ' ']).unwrap_or(self.text.len());
        let (word, rest) = self.text.split_at(length);
        self.text = rest.trim_start();
        if let Some(arguments) = self.text.strip_prefix('(') {
            self.text = arguments;
            let arguments = self.arguments(depth)?;
            let Converted { expr, differs } = call(word, &arguments)?;
            self.differs = differs.or(self.differs.take());
            return bounded(expr);
        }
        match serde_json::from_str::<Value>(word) {
            Ok(value @ (Value::Number(_) | Value::Bool(_) | Value::Null)) => Ok(value.to_string()),
            _ => Err(format!("unknown word {}", Value::from(word))),
        }
    }

    /// Takes the text of a path, up to the sign that ends an argument.
    fn path_text(&mut self) -> &'t str {
        let (mut depth, mut quote) = (0, None);
        let end = self.text.find(|letter: char| {
            match (quote, letter) {
                (Some(open), letter) if open == letter => quote = None,
                (Some(_), _) => {}
                (None, '\'' | '"') => quote = Some(letter),
                (None, '[') => depth += 1,
                (None, ']') => depth -= 1,
                (None, ',' | ')') => return depth <= 0,
                _ => {}
            }
            false
        });
        let (path, rest) = self.text.split_at(end.unwrap_or(self.text.len()));
        self.text = rest;
        path.trim_end()
    }

    fn string(&mut self) -> Result<String, String> {
        let mut found = String::new();
        let mut letters = self.text.char_indices().skip(1);
        while let Some((index, letter)) = letters.next() {
            match letter {
                '\'' => {
                    self.text = &self.text[index + 1..];
                    return Ok(found);
                }
                '\\' => found.extend(letters.next().map(|(_, letter)| letter)),
                letter => found.push(letter),
            }
        }
        Err("a text has no end".into())
    }

    fn arguments(&mut self, depth: usize) -> Result<Vec<String>, String> {
        let mut arguments = Vec::new();
        loop {
            self.text = self.text.trim_start();
            if let Some(rest) = self.text.strip_prefix(')').filter(|_| arguments.is_empty()) {
                self.text = rest;
                return Ok(arguments);
            }
            arguments.push(self.value(depth)?);
            self.text = self.text.trim_start();
            let mut rest = self.text.chars();
            let sign = rest.next();
            self.text = rest.as_str();
            match sign {
                Some(',') => {}
                Some(')') => return Ok(arguments),
                _ => return Err("a call has no end".into()),
            }
        }
    }
}

/// Converts the call of an intrinsic function.
fn call(name: &str, arguments: &[String]) -> Result<Converted, String> {
    let refused = || Err(format!("`{name}` has no counterpart"));
    let a = arguments.first().map(|argument| atom(argument)).unwrap_or_default();
    let exact = |expr: String| Ok(Converted::exact(expr));
    let differs = |expr: String, why: &str| Ok(Converted { expr, differs: Some(format!("`{name}`: {why}")) });
    match (name, arguments) {
        ("States.Format", [template, values @ ..]) => format(template, values),
        ("States.StringToJson", [_]) => exact(format!("{a} | fromjson")),
        ("States.JsonToString", [_]) => exact(format!("{a} | tojson")),
        ("States.Array", items) => exact(format!("[{}]", items.join(", "))),
        ("States.ArrayPartition", [_, size]) => exact(format!("{a} | batch({size})")),
        ("States.ArrayContains", [_, item]) => exact(format!("({item}) in {a}")),
        ("States.ArrayGetItem", [_, index]) => exact(format!("{a}[{index}]")),
        ("States.ArrayLength", [_]) => exact(format!("{a} | length")),
        ("States.ArrayUnique", [_]) => differs(format!("{a} | unique"), "the order of the items may differ"),
        ("States.ArrayRange", [from, to, step]) => {
            let positive = step.parse::<i64>().is_ok_and(|step| step > 0);
            match positive {
                true => exact(format!("range({from}, {} + 1, {step})", atom(to))),
                false => refused(),
            }
        }
        ("States.Base64Encode", [_]) => exact(format!("{a} | base64encode")),
        ("States.Base64Decode", [_]) => exact(format!("{a} | base64decode")),
        ("States.Hash", [_, algorithm]) => match algorithm.as_str() {
            "'SHA-256'" => exact(format!("{a} | sha256")),
            "'SHA-512'" => exact(format!("{a} | sha512")),
            _ => refused(),
        },
        ("States.JsonMerge", [_, over, deep]) if deep == "false" => {
            differs(format!("{a} | merge({over})"), "objects under the same key are merged here, and replaced there")
        }
        ("States.MathAdd", [a, b]) => exact(format!("{} + {}", whole(a), whole(b))),
        ("States.MathRandom", [_, to]) => exact(format!("random({} - {a}) + {a}", atom(to))),
        ("States.MathRandom", [_, to, _]) => {
            differs(format!("random({} - {a}) + {a}", atom(to)), "the seed has no effect")
        }
        ("States.StringSplit", [_, separator]) if separator.chars().count() == 3 => {
            differs(format!("{a} | split({separator})"), "empty parts may be kept")
        }
        ("States.UUID", []) => exact("uuid()".into()),
        _ => refused(),
    }
}

/// Returns the operand of a sum of whole numbers. Others are rounded.
fn whole(number: &str) -> String {
    match number.parse::<i64>() {
        Ok(_) => atom(number),
        Err(_) => format!("({} | round | int)", atom(number)),
    }
}

/// Converts `States.Format`. Each `{}` stands for the next value.
fn format(template: &str, values: &[String]) -> Result<Converted, String> {
    let text = template.strip_prefix('\'').and_then(|text| text.strip_suffix('\''));
    let text = text.ok_or("`States.Format`: the template must be a text")?;
    // `quoted` has written the braces as escapes.
    let parts: Vec<&str> = text.split("\\u007b\\u007d").collect();
    if parts.len() != values.len() + 1 {
        return Err(format!("`States.Format` has {} values for {} places", values.len(), parts.len() - 1));
    }
    let mut joined: Vec<String> = Vec::new();
    for (index, part) in parts.iter().enumerate() {
        if !part.is_empty() {
            joined.push(format!("'{part}'"));
        }
        if let Some(value) = values.get(index) {
            let value = atom(value);
            joined.push(match value.starts_with('\'') {
                true => value,
                // A null is written as `null`, and not as nothing.
                false => format!("({value} if {value} is string else {value} | tojson)"),
            });
        }
    }
    if joined.is_empty() {
        return Ok(Converted::exact("''".into()));
    }
    let text = if joined.len() == 1 { format!("{} ~ ''", joined[0]) } else { joined.join(" ~ ") };
    Ok(Converted::exact(text))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    fn env() -> Env {
        let vars = [("count".to_owned(), "v.value.count".to_owned())].into();
        Env { data: "d.value".into(), vars, item: Some(("m.item".into(), "m.index".into())), state: "S".into() }
    }

    #[test]
    fn paths_become_expressions() {
        let cases = [
            ("$", "d.value"),
            ("$.a.b", "d.value.a.b"),
            ("$['a b'].c", "d.value['a b'].c"),
            ("$.a[0][-1]", "d.value.a[0][-1]"),
            ("$.a[1:3]", "d.value.a[1:3]"),
            ("$.a-b", "d.value['a-b']"),
            ("$count", "v.value.count"),
            ("$count.x", "v.value.count.x"),
            ("$$.Execution.Input.a", "flow.input.a"),
            ("$$.Map.Item.Value.a", "m.item.a"),
            ("$$.State.Name", "'S'"),
            ("$.a[*].b", "((d.value.a | values if d.value.a is mapping else d.value.a) | map(attribute='b'))"),
            ("States.Array($.a, 'x, y', States.UUID(), 3)", "[d.value.a, 'x, y', uuid(), 3]"),
            ("States.MathAdd($.n, -1)", "(d.value.n | round | int) + (-1)"),
            ("States.Format('{}', $.a)", "(d.value.a if d.value.a is string else d.value.a | tojson) ~ ''"),
            (r"States.Format('it\'s {}!', 'x')", r"'it\'s ' ~ 'x' ~ '!'"),
        ];
        for (text, expected) in cases {
            assert_eq!(dynamic(text, &env()).map(|converted| converted.expr).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn odd_paths_are_refused() {
        let deep = format!("{}1{}", "States.Array(".repeat(1_000), ")".repeat(1_000));
        // Each call writes its value three times.
        let tripled = format!("{}$.a{}", "States.Format('{}', ".repeat(9), ")".repeat(9));
        let long = format!("${}", ".a".repeat(LONGEST));
        let odd = [
            "",
            "a",
            "$.",
            "$..a",
            "$.a[",
            "$.a[?(@.b > 1)]",
            "$.a.length()",
            "$['a",
            "$.a[0,1]",
            "$$",
            "$$.Task.Token",
            "$other",
            "States.Array(",
            "States.Array(1",
            "States.Array('a",
            "States.Nothing(1)",
            "States.Format('{}')",
            "States.Hash($.a, 'MD5')",
            "States.UUID() x",
            "$.a b",
            "$.a[*][0]",
            "$$['Execution.Input']",
            "$$['Execution.Input'].a",
            "$$.Map['Item.Value']",
            &deep,
            &tripled,
            &long,
        ];
        for text in odd {
            let expr = dynamic(text, &env()).map(|converted| converted.expr);
            assert!(expr.is_err(), "{text}: {expr:?}");
        }
    }

    #[test]
    fn the_presence_of_a_long_path_is_not_tested() {
        assert!(presence("$.a.b[0]", &env()).is_ok());
        assert!(presence(&format!("${}", ".a".repeat(100_000)), &env()).is_err());
    }
}
