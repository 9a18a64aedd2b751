//! Reads every token of an expression before the parser sees it.
//!
//! minijinja 3.0.5 loses errors of its lexer: after a quoted text, `src/compiler/parser.rs:741` asks
//! `matches!(self.stream.current(), Ok(Some(…)))`. `TokenStream::current` (line 139 of the same file) returns an error
//! once and then reports the end of the source, so the parser accepts `kind == 'bug' && …` as `kind == 'bug'`. Every
//! text for the parser passes [`read`] or [`is_lexed`] first. Keep both until upstream passes the error on.

use minijinja::{
    machinery::{Token, tokenize},
    syntax::SyntaxConfig,
};

use super::syntax_errors::{self, Lexeme};
use crate::{error::ExprError, limits};

/// Reads all tokens. Returns an error for text that is not a token, and for sources that would cost the parser too much
/// time or stack.
pub(super) fn read(source: &str) -> Result<Vec<Lexeme<'_>>, ExprError> {
    if source.len() > limits::EXPRESSION_BYTES {
        return Err(ExprError::new(format!("the expression is longer than {} bytes", limits::EXPRESSION_BYTES)));
    }
    let mut tokens: Vec<Lexeme<'_>> = Vec::new();
    let (mut brackets, mut prefixes) = (0_usize, 0);
    for token in tokenize(source, true, SyntaxConfig::default()) {
        let Ok((token, span)) = token else {
            return Err(syntax_errors::unreadable(source, &tokens));
        };
        match &token {
            Token::ParenOpen | Token::BracketOpen | Token::BraceOpen => brackets += 1,
            Token::ParenClose | Token::BracketClose | Token::BraceClose => brackets = brackets.saturating_sub(1),
            Token::Minus if !tokens.last().is_some_and(|(token, _)| ends_operand(token)) => prefixes += 1,
            Token::Ident("not" | "if") => prefixes += 1,
            Token::Float(number) if !number.is_finite() => {
                let place = span.start_offset as usize..span.end_offset as usize;
                return Err(syntax_errors::number_too_large(
                    source.get(place.clone()).unwrap_or_default(),
                    place.start,
                ));
            }
            _ => {}
        }
        tokens.push((token, span.start_offset as usize..span.end_offset as usize));
        if tokens.len() > limits::TOKENS {
            return Err(ExprError::new(format!("the expression has more than {} tokens", limits::TOKENS)));
        }
        if brackets + prefixes > limits::NESTING {
            return Err(ExprError::new(too_deep()));
        }
    }
    Ok(tokens)
}

/// Finds a text that the parser would ignore, because it is invalid and follows a quoted text. Returns the byte offset
/// at which the ignored text starts, and the error about it; `None` if the parser ignores nothing.
pub(crate) fn find_ignored(source: &str) -> Option<(usize, ExprError)> {
    let mut tokens: Vec<Lexeme<'_>> = Vec::new();
    for token in tokenize(source, true, SyntaxConfig::default()).take(limits::TOKENS) {
        match token {
            Ok((token, span)) => tokens.push((token, span.start_offset as usize..span.end_offset as usize)),
            Err(_) => {
                let Some((Token::Str(_), place)) = tokens.last() else { return None };
                return Some((place.end, syntax_errors::unreadable(source, &tokens)));
            }
        }
    }
    None
}

/// Returns true if the lexer reads a text to its end without an error.
pub(super) fn is_lexed(source: &str) -> bool {
    tokenize(source, true, SyntaxConfig::default()).all(|token| token.is_ok())
}

/// Returns the message about an expression that is nested too deeply.
pub(super) fn too_deep() -> String {
    format!("the expression is nested deeper than {}", limits::NESTING)
}

fn ends_operand(token: &Token<'_>) -> bool {
    match token {
        Token::Ident(word) => !matches!(*word, "and" | "or" | "not" | "in" | "is" | "if" | "else"),
        Token::Str(_) | Token::String(_) | Token::Int(_) | Token::Int128(_) | Token::Float(_) => true,
        other => matches!(other, Token::ParenClose | Token::BracketClose | Token::BraceClose),
    }
}
