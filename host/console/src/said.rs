//! A text of a model, which nobody has checked, as Markdown. HTML in it is shown as text, images are only named, and
//! links lead to web and mail addresses alone, which are shown.

use maud::{Markup, PreEscaped, html};
use pulldown_cmark::{Alignment, CowStr, Event, Options, Parser, Tag, TagEnd, html::push_html};

/// Maximum size of a text as HTML, in bytes. A larger one is shown as it was written: a table of few characters can have
/// very many cells, and an address may be used very often.
const MAX_HTML_BYTES: usize = 64 << 10;
/// Assumed size of an event as HTML, without its text.
const EVENT_BYTES: usize = 16;

/// Shows a text of a model.
pub(crate) fn said(text: &str) -> Markup {
    if !is_small(text) {
        return html! { pre tabindex="0" { (text) } };
    }
    let mut out = String::new();
    push_html(&mut out, harmless(text));
    html! { div .said { (PreEscaped(out)) } }
}

/// Returns whether a text has at most [`MAX_HTML_BYTES`] as HTML. Reads no further than to them.
fn is_small(text: &str) -> bool {
    let mut left = MAX_HTML_BYTES;
    harmless(text).all(|event| {
        let bytes = match &event {
            Event::Text(text) | Event::Code(text) => text.len(),
            Event::Start(Tag::Link { dest_url, .. }) => dest_url.len(),
            _ => 0,
        };
        left = left.saturating_sub(bytes + EVENT_BYTES);
        left > 0
    })
}

fn harmless(text: &str) -> Harmless<'_> {
    Harmless { events: Parser::new_ext(text, Options::ENABLE_TABLES), next: None, links: Vec::new() }
}

/// The events of a Markdown text, without those that could deceive or load something.
struct Harmless<'a> {
    events: Parser<'a>,
    /// The event that follows the last one.
    next: Option<Event<'a>>,
    /// The addresses of the open links and images. `None`: a link that is shown as text.
    links: Vec<Option<CowStr<'a>>>,
}

impl<'a> Iterator for Harmless<'a> {
    type Item = Event<'a>;

    fn next(&mut self) -> Option<Event<'a>> {
        if let Some(next) = self.next.take() {
            return Some(next);
        }
        Some(match self.events.next()? {
            Event::Html(text) | Event::InlineHtml(text) => Event::Text(text),
            Event::Start(Tag::Link { link_type, dest_url, title: _, id }) => {
                self.links.push(leads_outside(&dest_url).then(|| dest_url.clone()));
                match self.links.last() {
                    Some(Some(_)) => Event::Start(Tag::Link { link_type, dest_url, title: "".into(), id }),
                    _ => Event::Text("".into()),
                }
            }
            Event::End(TagEnd::Link) => match self.links.pop().flatten() {
                Some(address) => {
                    self.next = Some(Event::Text(format!(" ({address})").into()));
                    Event::End(TagEnd::Link)
                }
                None => Event::Text("".into()),
            },
            Event::Start(Tag::Image { dest_url, .. }) => {
                self.links.push(Some(dest_url));
                Event::Text("[image: ".into())
            }
            Event::End(TagEnd::Image) => {
                let address = self.links.pop().flatten().unwrap_or("".into());
                Event::Text(format!("] ({address})").into())
            }
            // The page has headings of its own.
            Event::Start(Tag::Heading { .. }) => {
                self.next = Some(Event::Start(Tag::Strong));
                Event::Start(Tag::Paragraph)
            }
            Event::End(TagEnd::Heading(_)) => {
                self.next = Some(Event::End(TagEnd::Paragraph));
                Event::End(TagEnd::Strong)
            }
            // The policy of the page forbids the styles that alignments would be.
            Event::Start(Tag::Table(columns)) => Event::Start(Tag::Table(vec![Alignment::None; columns.len()])),
            event => event,
        })
    }
}

/// Returns whether a link leads to a web or a mail address, and not into the console.
fn leads_outside(address: &str) -> bool {
    let scheme = address.split_once(':').map(|(scheme, _)| scheme.to_ascii_lowercase());
    scheme.is_some_and(|scheme| ["http", "https", "mailto"].contains(&&*scheme))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_cannot_load_deceive_or_run_anything() {
        let table = [
            ("<img src=x onerror=alert(1)>", "&lt;img src=x onerror=alert(1)&gt;"),
            ("a <b onclick=x>b</b>", "<p>a &lt;b onclick=x&gt;b&lt;/b&gt;</p>"),
            ("[a](javascript:alert(1))", "<p>a</p>"),
            ("[a](JaVaScRiPt:alert(1))", "<p>a</p>"),
            ("[a](data:text/html,x)", "<p>a</p>"),
            ("<javascript:alert(1)>", "<p>javascript:alert(1)</p>"),
            ("[a](/console/logout)", "<p>a</p>"),
            ("[a](//evil.test)", "<p>a</p>"),
            ("[bank](https://evil.test 'title')", r#"<p><a href="https://evil.test">bank</a> (https://evil.test)</p>"#),
            ("![pixel](https://evil.test/x.png)", "<p>[image: pixel] (https://evil.test/x.png)</p>"),
            (
                "[![p](https://a.test/x)](https://b.test)",
                r#"<p><a href="https://b.test">[image: p] (https://a.test/x)</a> (https://b.test)</p>"#,
            ),
            ("# T\n\nx", "<p><strong>T</strong></p>\n<p>x</p>"),
            ("```\n</code><script>\n```", "<pre><code>&lt;/code&gt;&lt;script&gt;\n</code></pre>"),
        ];
        for (text, shown) in table {
            let page = said(text).0;
            assert_eq!(
                page.trim_start_matches(r#"<div class="said">"#).trim_end_matches("</div>").trim_end(),
                shown,
                "{text}"
            );
        }
        let table = format!("{}\n{}\n{}", "|a".repeat(450), "|-".repeat(450), "a\n".repeat(900));
        let links = format!("[a]: https://{}.test\n\n{}", "x".repeat(900), "[a] ".repeat(800));
        for text in [table, links] {
            let page = said(&text).0;
            assert!(page.starts_with("<pre") && page.len() < 2 * text.len(), "{} of {}", page.len(), text.len());
        }
        let aligned = said("| a | b |\n|--:|:-:|\n| 1 | 2 |").0;
        assert!(aligned.contains("<td>1</td>") && !aligned.contains("style"), "{aligned}");
    }
}
