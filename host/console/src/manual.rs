//! The pages of the manual, with a search.

use axum::{extract::Path, http::StatusCode};
use flowcell_server::{
    api::Refusal,
    manual::{Group, PAGES, page},
};
use maud::{Markup, PreEscaped, html};
use pulldown_cmark::{CowStr, Event, Options, Parser, Tag, html::push_html};

use crate::{
    frame::{Area, Failure, Page},
    parts::cut,
    visit::Visit,
};

/// Maximum number of places that a search shows.
const MAX_FOUND: usize = 50;
/// Maximum number of bytes of a line that a search shows.
const MAX_LINE_BYTES: usize = 200;

/// Shows the list of pages, or the lines with the words of a search.
pub(crate) async fn list(visit: Visit) -> Page {
    let asked = visit.query("q").unwrap_or_default();
    let main = html! {
        form .filters method="get" role="search" action="/console/manual" {
            label { "Words" input type="search" name="q" value=(asked); }
            button { "Search" }
        }
        @if asked.trim().is_empty() {
            @for group in Group::ALL {
                section {
                    h2 { (group.title()) }
                    ul .plain { @for page in PAGES.iter().filter(|page| page.group == group) { li { (link(page.topic, page.title())) } } }
                }
            }
        } @else { (found(&asked)) }
    };
    Page::new(&visit, Area::Manual, "Manual", main)
}

fn link(topic: &str, title: &str) -> Markup {
    html! { a href={ "/console/manual/" (topic) } { (title) } }
}

/// Shows the lines that have all words, those in titles first.
fn found(asked: &str) -> Markup {
    let words: Vec<_> = asked.to_lowercase().split_whitespace().map(str::to_owned).collect();
    let lines = || PAGES.iter().flat_map(|page| page.text.lines().map(move |line| (page, line)));
    let fits = |line: &str| {
        let line = line.to_lowercase();
        words.iter().all(|word| line.contains(word))
    };
    let mut found: Vec<_> = lines().filter(|(_, line)| fits(line)).collect();
    found.sort_by_key(|(_, line)| !line.starts_with('#'));
    html! {
        p .faint { (found.len()) " lines have these words" @if found.len() > MAX_FOUND { "; the first " (MAX_FOUND) " are shown" } }
        ul .plain {
            @for (page, line) in found.iter().take(MAX_FOUND) {
                li { (link(page.topic, page.title())) br; span .faint { (cut(line.trim_start_matches(['#', ' ', '|']), MAX_LINE_BYTES).0) } }
            }
        }
    }
}

/// Shows a page.
pub(crate) async fn show(visit: Visit, Path(topic): Path<String>) -> Result<Page, Failure> {
    let Some(found) = page(&topic) else {
        let why = format!("the manual has no page `{topic}`");
        return Err(Failure::of(&visit, Refusal::new(StatusCode::NOT_FOUND, "not_found", why)));
    };
    let main = html! {
        p { a href="/console/manual" { "All pages" } }
        article .manual { (rendered(found.text)) }
    };
    Ok(Page::new(&visit, Area::Manual, found.title(), main))
}

/// Renders a page without its title. HTML in it is shown as text.
fn rendered(text: &str) -> Markup {
    let body = text.split_once('\n').map_or("", |(_, body)| body);
    let events = Parser::new_ext(body, Options::ENABLE_TABLES).map(|event| match event {
        Event::Html(text) | Event::InlineHtml(text) => Event::Text(text),
        Event::Start(Tag::Link { link_type, dest_url, title, id }) => {
            Event::Start(Tag::Link { link_type, dest_url: target(dest_url), title, id })
        }
        event => event,
    });
    let mut out = String::new();
    push_html(&mut out, events);
    PreEscaped(out)
}

/// Returns the address of a link: other pages are below `/console/manual`.
fn target(link: CowStr<'_>) -> CowStr<'_> {
    match link.split_once(".md") {
        Some((topic, _)) if page(topic).is_some() => format!("/console/manual/{topic}").into(),
        _ => link,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_between_pages_stay_in_the_console_and_html_is_text() {
        let page = rendered("# T\nSee [runs](runs.md#x) and [a](https://a.test).\n\n<img src=x onerror=y>\n").0;
        assert!(page.contains(r#"href="/console/manual/runs""#) && page.contains(r#"href="https://a.test""#), "{page}");
        assert!(page.contains("&lt;img") && !page.contains("<img"), "{page}");
    }

    #[test]
    fn a_search_finds_titles_first() {
        let page = found("retry").into_string();
        assert!(page.contains("/console/manual/retry") && page.contains("lines have these words"), "{page}");
    }
}
