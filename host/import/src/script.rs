//! Translates JavaScript in the expressions of n8n.

use serde_json::Value;

use crate::{
    expr::{atom, bounded, literal, member, quoted},
    syntax::{Ast, Language, parse},
};

/// The values that an expression can read.
pub(crate) struct Names<'n> {
    /// Expression of the present item; `None` if the node does not run for each item.
    pub(crate) item: Option<&'n str>,
    /// Expression of the number of the present item.
    pub(crate) index: Option<&'n str>,
    /// Expression of all items.
    pub(crate) list: &'n str,
    /// Returns the expression of the items of another node.
    pub(crate) node: &'n dyn Fn(&str) -> Option<String>,
}

/// An expression, and the reasons for which it may give another value.
#[derive(Debug, Default)]
pub(crate) struct Converted {
    pub(crate) expr: String,
    pub(crate) differs: Vec<&'static str>,
}

/// Converts a JavaScript expression.
pub(crate) fn convert(text: &str, names: &Names<'_>) -> Result<Converted, String> {
    let ast = parse(text, Language::JavaScript)?;
    let mut writer = Writer { names, differs: Vec::new() };
    let expr = writer.write(&ast)?;
    Ok(Converted { expr, differs: writer.differs })
}

/// The difference of operators for numbers.
const TYPES: &str = "values of other types than numbers are not converted, and texts are ordered by code points";

/// Returns true for a number in the text.
fn is_number(ast: &Ast) -> bool {
    matches!(ast, Ast::Literal(Value::Number(_)))
}

struct Writer<'n> {
    names: &'n Names<'n>,
    differs: Vec<&'static str>,
}

impl Writer<'_> {
    fn differs(&mut self, why: &'static str) {
        if !self.differs.contains(&why) {
            self.differs.push(why);
        }
    }

    fn operand(&mut self, ast: &Ast) -> Result<String, String> {
        self.write(ast).map(|expr| atom(&expr))
    }

    fn write(&mut self, ast: &Ast) -> Result<String, String> {
        bounded(self.step(ast)?)
    }

    fn step(&mut self, ast: &Ast) -> Result<String, String> {
        if let Some(items) = self.items(ast)? {
            return Ok(items);
        }
        match ast {
            Ast::Literal(value) => Ok(literal(value)),
            Ast::Name(name) => self.name(name),
            Ast::Member(value, key) => self.member(value, key),
            Ast::Index(value, index) => Ok(format!("{}[{}]", self.operand(value)?, self.write(index)?)),
            Ast::Call(function, arguments) => self.call(function, arguments),
            Ast::Unary("!", value) => {
                self.truth(value);
                Ok(format!("not {}", self.operand(value)?))
            }
            Ast::Unary(sign, value) => {
                if !is_number(value) {
                    self.differs(TYPES);
                }
                Ok(format!("{sign}{}", self.operand(value)?))
            }
            Ast::Binary(sign, left, right) => self.binary(sign, left, right),
            Ast::Conditional(parts) => {
                let [condition, then, other] = &**parts;
                self.truth(condition);
                Ok(format!("{} if {} else {}", self.operand(then)?, self.operand(condition)?, self.operand(other)?))
            }
            Ast::List(items) => {
                let items: Result<Vec<_>, _> = items.iter().map(|item| self.write(item)).collect();
                Ok(format!("[{}]", items?.join(", ")))
            }
            Ast::Object(members) => {
                let members: Result<Vec<_>, String> =
                    members.iter().map(|(key, value)| Ok(format!("{}: {}", quoted(key), self.write(value)?))).collect();
                Ok(format!("{{{}}}", members?.join(", ")))
            }
        }
    }

    fn name(&mut self, name: &str) -> Result<String, String> {
        let known = match name {
            "$json" => self.names.item,
            "$itemIndex" => self.names.index,
            "$now" => Some("now"),
            _ => None,
        };
        known.map(str::to_owned).ok_or_else(|| format!("`{name}` has no counterpart here"))
    }

    /// Returns the expression of an item's JSON, such as `$('A').first().json`; `None` if it is something else.
    fn items(&mut self, ast: &Ast) -> Result<Option<String>, String> {
        let Ast::Member(item, key) = ast else { return Ok(None) };
        if key != "json" {
            return Ok(None);
        }
        let (list, way) = match &**item {
            Ast::Call(function, arguments) if arguments.is_empty() => match &**function {
                Ast::Member(list, way) => (&**list, way.as_str()),
                _ => return Ok(None),
            },
            Ast::Member(list, way) => (&**list, way.as_str()),
            // The old form `$node["A"].json`.
            Ast::Name(name) if name == "$item" => return Err("`$item` is not supported".into()),
            _ => return Ok(None),
        };
        let name = match list {
            Ast::Name(name) if name == "$input" => None,
            Ast::Name(name) if name == "$node" => {
                return self.paired(way).map(Some);
            }
            Ast::Call(function, arguments) => match (&**function, arguments.as_slice()) {
                (Ast::Name(dollar), [Ast::Literal(Value::String(name))]) if dollar == "$" => Some(name.as_str()),
                _ => return Ok(None),
            },
            _ => return Ok(None),
        };
        let expr = match name {
            None => self.names.list.to_owned(),
            Some(name) => self.node(name)?,
        };
        match (way, name) {
            ("first", _) => Ok(Some(format!("({expr} | first)"))),
            ("last", _) => Ok(Some(format!("({expr} | last)"))),
            ("item", None) => self.name("$json").map(Some),
            ("item", Some(name)) => self.paired(name).map(Some),
            _ => Err(format!("`{way}` of items is not supported")),
        }
    }

    /// Returns the item of another node that belongs to the present one.
    fn paired(&mut self, name: &str) -> Result<String, String> {
        let list = self.node(name)?;
        let index = self.names.index.ok_or("an item of another node is only known for each item")?;
        self.differs("the item of the other node is the one at the same place");
        Ok(format!("{}[{index}]", atom(&list)))
    }

    fn node(&self, name: &str) -> Result<String, String> {
        (self.names.node)(name).ok_or_else(|| format!("the node {} does not run before", Value::from(name)))
    }

    fn member(&mut self, value: &Ast, key: &str) -> Result<String, String> {
        match (value, key) {
            (Ast::Name(name), "id") if name == "$execution" => Ok("run.id".into()),
            (Ast::Name(name), "name") if name == "$workflow" => {
                self.differs("the flow has a name of its own");
                Ok("flow.name".into())
            }
            (Ast::Name(name), _) if name.starts_with('$') && name != "$json" => {
                Err(format!("`{name}.{key}` has no counterpart here"))
            }
            // The item is an object, and this is its member.
            (Ast::Name(_), "length") => Ok(member(&self.write(value)?, key)),
            (value, "length") => {
                self.differs("`length` counts characters and members, and there 16-bit units or a member of this name");
                Ok(format!("{} | length", self.operand(value)?))
            }
            (value, key) => Ok(member(&self.write(value)?, key)),
        }
    }

    fn call(&mut self, function: &Ast, arguments: &[Ast]) -> Result<String, String> {
        let mut values = Vec::new();
        for argument in arguments {
            values.push(self.operand(argument)?);
        }
        let (target, name) = match function {
            Ast::Name(name) => (None, name.as_str()),
            Ast::Member(target, name) => (Some(&**target), name.as_str()),
            _ => return Err("this call is not supported".into()),
        };
        if let Some(Ast::Name(object)) = target.filter(|target| matches!(target, Ast::Name(_))) {
            let known = match (object.as_str(), name, values.as_slice()) {
                ("Math", "floor", [x]) => Some(format!("{x} | round(0, 'floor') | int")),
                ("Math", "ceil", [x]) => Some(format!("{x} | round(0, 'ceil') | int")),
                ("Math", "abs", [x]) => Some(format!("{x} | abs")),
                ("JSON", "stringify", [x]) => Some(format!("{x} | tojson")),
                ("JSON", "parse", [x]) => Some(format!("{x} | fromjson")),
                ("Object", "keys", [x]) => Some(format!("{x} | keys")),
                ("$now", "toISO", []) => Some("now".into()),
                _ => None,
            };
            if let Some(known) = known {
                return Ok(known);
            }
        }
        let Some(target) = target else {
            return match (name, values.as_slice()) {
                ("String", [x]) => {
                    self.differs("an object or a list is written as JSON");
                    Ok(format!("{x} | string"))
                }
                ("Number", [x]) => {
                    self.differs("a text that is no number is 0");
                    Ok(format!("{x} | float"))
                }
                _ => Err(format!("the function `{name}` has no counterpart")),
            };
        };
        let x = self.operand(target)?;
        match (name, values.as_slice()) {
            ("toUpperCase", []) => Ok(format!("{x} | upper")),
            ("toLowerCase", []) => Ok(format!("{x} | lower")),
            ("trim", []) => Ok(format!("{x} | trim")),
            ("includes", [part]) => Ok(format!("{part} in {x}")),
            ("startsWith", [start]) => Ok(format!("{x} is startingwith({start})")),
            ("endsWith", [end]) => Ok(format!("{x} is endingwith({end})")),
            ("split", [separator]) => Ok(format!("{x} | split({separator})")),
            ("join", [separator]) => Ok(format!("{x} | join({separator})")),
            ("replaceAll", [from, to]) => Ok(format!("{x} | replace({from}, {to})")),
            ("slice", [from, to]) => Ok(format!("{x}[{from}:{to}]")),
            ("slice", [from]) => Ok(format!("{x}[{from}:]")),
            ("concat", [other]) => Ok(format!("{x} | chain({other})")),
            ("toString", []) => {
                self.differs("an object or a list is written as JSON");
                Ok(format!("{x} | string"))
            }
            _ => Err(format!("the method `{name}` has no counterpart")),
        }
    }

    fn binary(&mut self, sign: &str, left: &Ast, right: &Ast) -> Result<String, String> {
        let is_text = |ast: &Ast| matches!(ast, Ast::Literal(Value::String(_)));
        let is_null = |ast: &Ast| matches!(ast, Ast::Literal(Value::Null));
        let is_plain = |ast: &Ast| matches!(ast, Ast::Literal(value) if !value.is_null());
        let are_numbers = is_number(left) && is_number(right);
        let (a, b) = (self.operand(left)?, self.operand(right)?);
        let sign = match sign {
            "===" | "!==" => {
                if !is_plain(left) && !is_plain(right) {
                    self.differs("objects and lists are compared by their content, and a missing value is null");
                }
                if sign == "===" { "==" } else { "!=" }
            }
            "==" | "!=" => {
                if !are_numbers && !is_null(left) && !is_null(right) {
                    self.differs("`==` compares without converting types");
                }
                sign
            }
            "&&" | "||" => {
                self.truth(left);
                self.truth(right);
                if sign == "&&" { "and" } else { "or" }
            }
            "??" => return Ok(format!("{a} | default({b})")),
            "+" if is_text(left) || is_text(right) => {
                self.differs("an object, a list or a missing value is written in another way");
                return Ok(format!("{a} ~ {b}"));
            }
            "in" => {
                self.differs("`in` searches the items of a list, and there its indices");
                sign
            }
            sign => {
                if !are_numbers {
                    self.differs(TYPES);
                }
                sign
            }
        };
        Ok(format!("{a} {sign} {b}"))
    }

    /// Notes that a value which is not a comparison is taken as a condition.
    fn truth(&mut self, ast: &Ast) {
        let is_boolean = match ast {
            Ast::Binary(sign, ..) => !["+", "-", "*", "/", "%", "??"].contains(sign),
            Ast::Unary("!", _) | Ast::Literal(Value::Bool(_)) => true,
            Ast::Call(function, _) => {
                matches!(&**function, Ast::Member(_, name) if ["includes", "startsWith", "endsWith"].contains(&&**name))
            }
            _ => false,
        };
        if !is_boolean {
            self.differs("empty lists and objects count as false");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_become_those_of_flows() {
        let node = |name: &str| (name == "A b").then(|| "A_b.list".to_owned());
        let names = Names { item: Some("item"), index: Some("index"), list: "L.list", node: &node };
        let cases = [
            ("$json.a['b c']", Some("item.a['b c']"), 0),
            ("$json.tags[0].name", Some("item.tags[0].name"), 0),
            ("$('A b').first().json.x", Some("(A_b.list | first).x"), 0),
            ("$('A b').item.json.x", Some("A_b.list[index].x"), 1),
            ("$node[\"A b\"].json[\"x\"]", Some("A_b.list[index].x"), 1),
            ("$input.first().json.x", Some("(L.list | first).x"), 0),
            ("$input.item.json.x", Some("item.x"), 0),
            ("$json.a === 1 && !$json.b.includes('x')", Some("(item.a == 1) and (not ('x' in item.b))"), 0),
            ("$json.a ? 1 : 2", Some("1 if item.a else 2"), 1),
            ("'n: ' + $json.n", Some("'n: ' ~ item.n"), 1),
            ("$json.n * 2 + 1", Some("(item.n * 2) + 1"), 1),
            ("2 * 3 - 1", Some("(2 * 3) - 1"), 1),
            ("2 < 3", Some("2 < 3"), 0),
            ("$json.n > 3", Some("item.n > 3"), 1),
            ("'2' < '10'", Some("'2' < '10'"), 1),
            ("-$json.n", Some("-item.n"), 1),
            ("$json.n == '3'", Some("item.n == '3'"), 1),
            ("$json.n == null", Some("item.n == null"), 0),
            ("$json.n === null", Some("item.n == null"), 1),
            ("$json.a !== $json.b", Some("item.a != item.b"), 1),
            ("'a' in $json", Some("'a' in item"), 1),
            ("$workflow.name", Some("flow.name"), 1),
            ("$json.name.toUpperCase()", Some("item.name | upper"), 0),
            ("$json.list.length", Some("item.list | length"), 1),
            ("$json.length", Some("item.length"), 0),
            ("$('C').first().json.x", None, 0),
            ("$env.KEY", None, 0),
            ("$vars.key", None, 0),
            ("$json.list.map(x => x.a)", None, 0),
            ("new Date()", None, 0),
            ("$input.all()", None, 0),
            ("constructor.constructor('return 1')()", None, 0),
        ];
        let long = format!("a{}", "+a".repeat(2_047));
        let chain = format!("$json{}", ".a".repeat(2_000));
        for (text, expected, differences) in cases.into_iter().chain([(&*long, None, 0), (&*chain, None, 0)]) {
            let given = convert(text, &names);
            match (given, expected) {
                (Ok(given), Some(expected)) => {
                    assert_eq!((given.expr.as_str(), given.differs.len()), (expected, differences), "{text}");
                }
                (Err(_), None) => {}
                (given, expected) => panic!("{text}: {given:?}, not {expected:?}"),
            }
        }
    }
}
