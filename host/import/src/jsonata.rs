//! Translates expressions of JSONata.

use serde_json::Value;

use crate::{
    expr::{atom, bounded, literal, member, quoted},
    syntax::{Ast, Language, parse},
};

/// Returns the expression of a variable and the first keys behind it, with the number of these keys that it stands for.
type Resolve<'r> = &'r dyn Fn(&str, &[String]) -> Option<(String, usize)>;

/// Converts a JSONata expression.
pub(crate) fn convert(text: &str, resolve: Resolve<'_>) -> Result<String, String> {
    written(&parse(text, Language::Jsonata)?, resolve)
}

fn written(ast: &Ast, resolve: Resolve<'_>) -> Result<String, String> {
    bounded(step(ast, resolve)?)
}

fn step(ast: &Ast, resolve: Resolve<'_>) -> Result<String, String> {
    let operand = |ast: &Ast| written(ast, resolve).map(|expr| atom(&expr));
    match ast {
        Ast::Literal(value) => Ok(literal(value)),
        Ast::Name(_) | Ast::Member(..) => path(ast, resolve),
        Ast::Index(value, index) => match &**index {
            Ast::Literal(Value::Number(_)) => Ok(format!("{}[{}]", operand(value)?, written(index, resolve)?)),
            Ast::Unary("-", _) => Ok(format!("{}[{}]", operand(value)?, written(index, resolve)?)),
            _ => Err("filters of lists are not supported".into()),
        },
        Ast::Call(function, arguments) => {
            let Ast::Name(name) = &**function else { return Err("only functions with a name can be called".into()) };
            let arguments: Result<Vec<_>, _> = arguments.iter().map(operand).collect();
            call(name, &arguments?)
        }
        Ast::Unary("-", value) => Ok(format!("-{}", operand(value)?)),
        Ast::Unary(sign, _) => Err(format!("`{sign}` is not supported")),
        Ast::Binary(sign, left, right) => {
            let (left, right) = (operand(left)?, operand(right)?);
            Ok(match *sign {
                "=" => format!("{left} == {right}"),
                "&" => format!("({left} | string) ~ ({right} | string)"),
                sign => format!("{left} {sign} {right}"),
            })
        }
        Ast::Conditional(parts) => {
            let [condition, then, other] = &**parts;
            Ok(format!("{} if {} else {}", operand(then)?, operand(condition)?, operand(other)?))
        }
        Ast::List(items) => {
            let items: Result<Vec<_>, _> = items.iter().map(|item| written(item, resolve)).collect();
            Ok(format!("[{}]", items?.join(", ")))
        }
        Ast::Object(members) => {
            let members =
                members.iter().map(|(key, value)| Ok(format!("{}: {}", quoted(key), written(value, resolve)?)));
            Ok(format!("{{{}}}", members.collect::<Result<Vec<_>, String>>()?.join(", ")))
        }
    }
}

/// Converts a variable with the members behind it.
fn path(ast: &Ast, resolve: Resolve<'_>) -> Result<String, String> {
    let mut keys = Vec::new();
    let mut at = ast;
    while let Ast::Member(value, key) = at {
        keys.push(key.clone());
        at = value;
    }
    keys.reverse();
    let (root, used) = match at {
        Ast::Name(name) => match name.strip_prefix('$') {
            Some(name) => resolve(name, &keys).ok_or_else(|| format!("`${name}` has no counterpart here"))?,
            None => return Err(format!("`{name}` has no value before it")),
        },
        at => (written(at, resolve)?, 0),
    };
    Ok(keys[used..].iter().fold(root, |expr, key| member(&expr, key)))
}

fn call(name: &str, arguments: &[String]) -> Result<String, String> {
    let filter = |filter: &str| Ok(format!("{} | {filter}", arguments[0]));
    match (name, arguments) {
        ("$string", [x]) => Ok(format!("{x} if {x} is string else {x} | tojson")),
        ("$count" | "$length", [_]) => filter("length"),
        ("$sum", [_]) => filter("sum"),
        ("$max", [_]) => filter("max"),
        ("$min", [_]) => filter("min"),
        ("$abs", [_]) => filter("abs"),
        ("$floor", [_]) => filter("round(0, 'floor') | int"),
        ("$ceil", [_]) => filter("round(0, 'ceil') | int"),
        ("$uppercase", [_]) => filter("upper"),
        ("$lowercase", [_]) => filter("lower"),
        ("$trim", [_]) => filter("trim"),
        ("$keys", [_]) => filter("keys"),
        ("$reverse", [_]) => filter("reverse"),
        ("$distinct", [_]) => filter("unique"),
        ("$boolean", [_]) => filter("bool"),
        ("$parse", [_]) => filter("fromjson"),
        ("$base64encode", [_]) => filter("base64encode"),
        ("$base64decode", [_]) => filter("base64decode"),
        ("$not", [x]) => Ok(format!("not {x}")),
        ("$exists", [x]) => Ok(format!("{x} is defined")),
        ("$join", [_]) => filter("join"),
        ("$join", [_, separator]) => filter(&format!("join({separator})")),
        ("$split", [_, separator]) => filter(&format!("split({separator})")),
        ("$append", [_, other]) => filter(&format!("chain({other})")),
        ("$contains", [text, part]) => Ok(format!("{part} in {text}")),
        ("$uuid", []) => Ok("uuid()".into()),
        ("$now", []) => Ok("now".into()),
        _ => Err(format!("the function `{name}` has no counterpart")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_become_those_of_flows() {
        let resolve = |name: &str, keys: &[String]| match (name, keys.first().map(String::as_str)) {
            ("states", Some("input")) => Some(("d".to_owned(), 1)),
            ("count", _) => Some(("v.count".to_owned(), 0)),
            _ => None,
        };
        let cases = [
            (" $states.input.a.b ", Some("d.a.b")),
            ("$states.input.`a b` = 'x'", Some("d['a b'] == 'x'")),
            ("$count + 1", Some("v.count + 1")),
            ("$count > 3 and $exists($states.input.x)", Some("(v.count > 3) and (d.x is defined)")),
            ("$states.input.a ? 'y' : [1, {'k': $count}]", Some("'y' if d.a else [1, {'k': v.count}]")),
            ("'n' & $count", Some("('n' | string) ~ (v.count | string)")),
            ("$states.input.items[0]", Some("d.items[0]")),
            ("$states.input.items[price > 3]", None),
            ("$map($states.input.items, function($i) { $i })", None),
            ("$other", None),
            ("a.b", None),
            ("$states", None),
        ];
        // Each call writes its argument three times.
        let tripled = format!("{}$count{}", "$string(".repeat(9), ")".repeat(9));
        for (text, expected) in cases.into_iter().chain([(tripled.as_str(), None)]) {
            let given = convert(text, &resolve);
            assert_eq!(given.as_deref().ok(), expected, "{text}: {given:?}");
        }
    }
}
