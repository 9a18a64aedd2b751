//! Parses expressions of JavaScript and JSONata, as far as both look alike.

use serde_json::Value;

/// A language of expressions.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Language {
    JavaScript,
    Jsonata,
}

/// A parsed expression.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Ast {
    Literal(Value),
    Name(String),
    Member(Box<Ast>, String),
    Index(Box<Ast>, Box<Ast>),
    Call(Box<Ast>, Vec<Ast>),
    Unary(&'static str, Box<Ast>),
    Binary(&'static str, Box<Ast>, Box<Ast>),
    Conditional(Box<[Ast; 3]>),
    List(Vec<Ast>),
    Object(Vec<(String, Ast)>),
}

/// Maximum length of an expression in bytes.
pub(crate) const LONGEST: usize = 4_096;
/// Maximum nesting of an expression.
const DEPTH: usize = 24;
/// Maximum number of operators in a row, and of members and calls in a row.
const CHAIN: usize = 24;

/// The operators with their precedences, the longest first.
const JAVASCRIPT: [(&str, u8); 17] = [
    ("===", 4),
    ("!==", 4),
    ("==", 4),
    ("!=", 4),
    ("<=", 5),
    (">=", 5),
    ("&&", 3),
    ("||", 2),
    ("??", 2),
    ("<", 5),
    (">", 5),
    ("+", 6),
    ("-", 6),
    ("*", 7),
    ("/", 7),
    ("%", 7),
    ("in", 5),
];
const JSONATA: [(&str, u8); 15] = [
    ("!=", 4),
    ("<=", 4),
    (">=", 4),
    ("=", 4),
    ("<", 4),
    (">", 4),
    ("in", 4),
    ("and", 3),
    ("or", 2),
    ("&", 5),
    ("+", 6),
    ("-", 6),
    ("*", 7),
    ("/", 7),
    ("%", 7),
];

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Value(Value),
    Name(String),
    Sign(&'static str),
}

const SIGNS: [&str; 13] = ["?.", "=>", "(", ")", "[", "]", "{", "}", ",", ":", "?", "!", "."];

/// Parses an expression.
pub(crate) fn parse(text: &str, language: Language) -> Result<Ast, String> {
    if text.len() > LONGEST {
        return Err(format!("the expression has more than {LONGEST} bytes"));
    }
    let mut tokens = tokens(text, language)?;
    tokens.reverse();
    let mut parser = Parser { tokens, language };
    let ast = parser.expression(0, DEPTH)?;
    match parser.tokens.last() {
        None => Ok(ast),
        Some(token) => Err(format!("{} is not supported here", shown(token))),
    }
}

fn shown(token: &Token) -> String {
    match token {
        Token::Value(value) => value.to_string(),
        Token::Name(name) => format!("`{name}`"),
        Token::Sign(sign) => format!("`{sign}`"),
    }
}

fn tokens(text: &str, language: Language) -> Result<Vec<Token>, String> {
    let mut found = Vec::new();
    let mut rest = text.trim_start();
    let operators: &[(&str, u8)] = if language == Language::JavaScript { &JAVASCRIPT } else { &JSONATA };
    while let Some(first) = rest.chars().next() {
        let length = if matches!(first, '\'' | '"' | '`') {
            let (content, length) = quoted(rest, first)?;
            found.push(match (first, language) {
                ('`', Language::Jsonata) => Token::Name(content),
                ('`', Language::JavaScript) if content.contains("${") => {
                    return Err("texts with `${…}` are not supported".into());
                }
                _ => Token::Value(content.into()),
            });
            length
        } else if first.is_ascii_digit() {
            let length =
                rest.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '.').unwrap_or(rest.len());
            let number = serde_json::from_str::<Value>(&rest[..length]).ok().filter(Value::is_number);
            found.push(Token::Value(number.ok_or_else(|| format!("`{}` is not a number", &rest[..length]))?));
            length
        } else if first.is_alphabetic() || matches!(first, '_' | '$') {
            let length = rest
                .find(|letter: char| !letter.is_alphanumeric() && !matches!(letter, '_' | '$'))
                .unwrap_or(rest.len());
            let word = &rest[..length];
            let operator = operators.iter().find(|(operator, _)| *operator == word);
            // Behind a point a word is a name.
            let is_member = matches!(found.last(), Some(Token::Sign("." | "?.")));
            found.push(match (word, operator) {
                ("true" | "false" | "null", _) if !is_member => {
                    Token::Value(serde_json::from_str(word).unwrap_or_default())
                }
                ("undefined", _) if language == Language::JavaScript && !is_member => Token::Value(Value::Null),
                (_, Some((operator, _))) if !is_member => Token::Sign(operator),
                _ => Token::Name(word.to_owned()),
            });
            length
        } else {
            let signs = operators.iter().map(|(operator, _)| *operator).chain(SIGNS);
            let fits = signs.filter(|sign| rest.starts_with(sign)).max_by_key(|sign| sign.len());
            let sign = fits.ok_or_else(|| format!("{} is not supported", Value::from(first.to_string())))?;
            found.push(Token::Sign(sign));
            sign.len()
        };
        rest = rest[length..].trim_start();
    }
    Ok(found)
}

/// Returns the content of a quoted text at the beginning of `text`, and its length with the quotes.
fn quoted(text: &str, quote: char) -> Result<(String, usize), String> {
    let mut content = String::new();
    let mut letters = text.char_indices().skip(1);
    while let Some((index, letter)) = letters.next() {
        match letter {
            letter if letter == quote => return Ok((content, index + 1)),
            '\\' => match letters.next().map(|(_, letter)| letter) {
                Some('n') => content.push('\n'),
                Some('t') => content.push('\t'),
                Some('r') => content.push('\r'),
                Some(letter @ ('\'' | '"' | '`' | '\\' | '/')) => content.push(letter),
                _ => return Err("a text has an escape that is not supported".into()),
            },
            letter => content.push(letter),
        }
    }
    Err("a text has no end".into())
}

/// Returns the length of a chain with one more part. Each part is one level of the parsed expression.
fn lengthened(chain: usize) -> Result<usize, String> {
    if chain < CHAIN { Ok(chain + 1) } else { Err(format!("more than {CHAIN} parts follow each other")) }
}

struct Parser {
    /// The tokens that remain, the next one last.
    tokens: Vec<Token>,
    language: Language,
}

impl Parser {
    fn take(&mut self, sign: &str) -> bool {
        let is_next = matches!(self.tokens.last(), Some(Token::Sign(next)) if *next == sign);
        if is_next {
            self.tokens.pop();
        }
        is_next
    }

    fn expect(&mut self, sign: &str) -> Result<(), String> {
        if self.take(sign) { Ok(()) } else { Err(format!("`{sign}` is missing")) }
    }

    fn expression(&mut self, least: u8, depth: usize) -> Result<Ast, String> {
        let depth = depth.checked_sub(1).ok_or("the expression is nested too deep")?;
        let mut left = self.unary(depth)?;
        let mut chain = 0;
        let operators: &[(&str, u8)] = if self.language == Language::JavaScript { &JAVASCRIPT } else { &JSONATA };
        while let Some(Token::Sign(sign)) = self.tokens.last() {
            let Some((operator, precedence)) = operators.iter().find(|(operator, _)| operator == sign) else { break };
            if *precedence < least.max(1) {
                break;
            }
            self.tokens.pop();
            chain = lengthened(chain)?;
            let right = self.expression(precedence + 1, depth)?;
            left = Ast::Binary(operator, Box::new(left), Box::new(right));
        }
        if least <= 1 && self.take("?") {
            let then = self.expression(1, depth)?;
            self.expect(":")?;
            let other = self.expression(1, depth)?;
            left = Ast::Conditional(Box::new([left, then, other]));
        }
        Ok(left)
    }

    fn unary(&mut self, depth: usize) -> Result<Ast, String> {
        let depth = depth.checked_sub(1).ok_or("the expression is nested too deep")?;
        for sign in ["!", "-"] {
            if self.take(sign) {
                return Ok(Ast::Unary(if sign == "!" { "!" } else { "-" }, Box::new(self.unary(depth)?)));
            }
        }
        let mut value = self.primary(depth)?;
        let mut chain = 0;
        loop {
            if self.take(".") || self.take("?.") {
                let Some(Token::Name(name)) = self.tokens.pop() else { return Err("a name is missing".into()) };
                value = Ast::Member(Box::new(value), name);
            } else if self.take("[") {
                let index = self.expression(0, depth)?;
                self.expect("]")?;
                value = match index {
                    Ast::Literal(Value::String(name)) if self.language == Language::JavaScript => {
                        Ast::Member(Box::new(value), name)
                    }
                    index => Ast::Index(Box::new(value), Box::new(index)),
                };
            } else if self.take("(") {
                value = Ast::Call(Box::new(value), self.items(")", depth)?);
            } else {
                return Ok(value);
            }
            chain = lengthened(chain)?;
        }
    }

    fn primary(&mut self, depth: usize) -> Result<Ast, String> {
        match self.tokens.pop() {
            Some(Token::Value(value)) => Ok(Ast::Literal(value)),
            Some(Token::Name(name)) => Ok(Ast::Name(name)),
            Some(Token::Sign("(")) => {
                let inner = self.expression(0, depth)?;
                self.expect(")").map(|()| inner)
            }
            Some(Token::Sign("[")) => self.items("]", depth).map(Ast::List),
            Some(Token::Sign("{")) => {
                let mut members = Vec::new();
                while !self.take("}") {
                    let key = match self.tokens.pop() {
                        Some(Token::Name(key) | Token::Value(Value::String(key))) => key,
                        _ => return Err("a key is missing".into()),
                    };
                    self.expect(":")?;
                    members.push((key, self.expression(0, depth)?));
                    if !self.take(",") {
                        self.expect("}")?;
                        break;
                    }
                }
                Ok(Ast::Object(members))
            }
            Some(token) => Err(format!("{} is not supported here", shown(&token))),
            None => Err("the expression is incomplete".into()),
        }
    }

    fn items(&mut self, end: &str, depth: usize) -> Result<Vec<Ast>, String> {
        let mut items = Vec::new();
        while !self.take(end) {
            items.push(self.expression(0, depth)?);
            if !self.take(",") {
                self.expect(end)?;
                break;
            }
        }
        Ok(items)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_expressions_are_refused() {
        let deep = "(".repeat(2_000);
        let bangs = "!".repeat(2_000);
        let long = "a+".repeat(LONGEST);
        let sum = format!("a{}", "+a".repeat(CHAIN + 1));
        let members = format!("a{}", ".a".repeat(CHAIN + 1));
        for text in [
            "", "a b", "'a", "a.", "a[", "1e999", "0x1g", "a => b", "a ? b", "{a", "{1: 2}", "`${a}`", "#", &deep,
            &bangs, &long, &sum, &members,
        ] {
            assert!(parse(text, Language::JavaScript).is_err(), "{text:.20}");
        }
    }

    #[test]
    fn operators_bind_as_in_their_languages() {
        let name = |name: &str| Box::new(Ast::Name(name.into()));
        let product = Ast::Binary("*", name("b"), name("c"));
        let sum = Ast::Binary("+", name("a"), Box::new(product));
        assert_eq!(parse("a + b * c", Language::JavaScript), Ok(sum.clone()));
        let equal = Ast::Binary("=", Box::new(sum), name("d"));
        assert_eq!(parse("a + b * c = d", Language::Jsonata), Ok(equal));
        assert!(parse(&format!("a{}", "+a".repeat(CHAIN)), Language::JavaScript).is_ok());
        let minus = Ast::Binary("-", Box::new(Ast::Binary("-", name("a"), name("b"))), name("c"));
        assert_eq!(parse("a - b - c", Language::JavaScript), Ok(minus));
    }
}
