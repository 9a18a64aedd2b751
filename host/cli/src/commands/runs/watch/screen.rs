//! The full screen of a terminal. The usual screen comes back when the command ends, also after a panic.

use std::{
    io::{self, Write},
    panic,
    sync::{
        Once,
        atomic::{AtomicBool, Ordering},
    },
};

use crossterm::{
    cursor::{Hide, MoveTo, Show},
    event::{self, DisableBracketedPaste, EnableBracketedPaste, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers},
    queue,
    style::{Attribute, Color, Print, ResetColor, SetAttribute, SetForegroundColor},
    terminal::{Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode, size},
};

use super::{
    frame::{Line, Style},
    model::Key,
};
use crate::terminal::guarded;

/// Set while the terminal shows the full screen.
static IS_OPEN: AtomicBool = AtomicBool::new(false);

/// Brings the usual screen back. Does nothing if it is there. Errors are ignored, since no terminal may be left.
pub(super) fn close() {
    if IS_OPEN.swap(false, Ordering::AcqRel) {
        let mut out = io::stdout();
        let _ = queue!(out, SetAttribute(Attribute::Reset), Show, DisableBracketedPaste, LeaveAlternateScreen)
            .and_then(|()| out.flush());
        let _ = disable_raw_mode();
    }
}

/// The full screen.
pub(super) struct Screen {
    is_coloured: bool,
    size: (u16, u16),
    /// The lines that the terminal shows.
    shown: Vec<Line>,
}

impl Screen {
    /// Switches the terminal to its full screen. A panic switches back before it prints its message.
    pub(super) fn open(is_coloured: bool) -> io::Result<Screen> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let usual = panic::take_hook();
            panic::set_hook(Box::new(move |info| {
                close();
                usual(info);
            }));
        });
        enable_raw_mode()?;
        IS_OPEN.store(true, Ordering::Release);
        let screen = Screen { is_coloured, size: (0, 0), shown: Vec::new() };
        let mut out = io::stdout();
        queue!(out, EnterAlternateScreen, EnableBracketedPaste, Hide)?;
        out.flush()?;
        Ok(screen)
    }

    /// Returns the columns and the lines of the terminal.
    pub(super) fn size(&self) -> io::Result<(usize, usize)> {
        let (columns, lines) = size_or_usual()?;
        Ok((columns.into(), lines.into()))
    }

    /// Lets the next frame draw every line, because something else has written to the terminal.
    pub(super) fn forget(&mut self) {
        self.size = (0, 0);
    }

    /// Draws the lines that have changed.
    pub(super) fn draw(&mut self, lines: Vec<Line>) -> io::Result<()> {
        let mut out = Vec::new();
        let size = size_or_usual()?;
        if size != self.size {
            queue!(out, Clear(ClearType::All))?;
            self.shown.clear();
            self.size = size;
        }
        for (number, line) in (0..size.1).zip(&lines) {
            if self.shown.get(usize::from(number)) != Some(line) {
                // A line is cleared first: after a letter in the last column, some terminals would clear that one.
                queue!(out, MoveTo(0, number), Clear(ClearType::UntilNewLine))?;
                self.write(&mut out, line)?;
            }
        }
        self.shown = lines;
        let mut terminal = io::stdout().lock();
        terminal.write_all(&out)?;
        terminal.flush()
    }

    fn write(&self, out: &mut Vec<u8>, line: &Line) -> io::Result<()> {
        for (style, text) in &line.parts {
            if line.is_selected {
                queue!(out, SetAttribute(Attribute::Reverse))?;
            }
            let colour = match style {
                Style::Plain => None,
                Style::Name => {
                    queue!(out, SetAttribute(Attribute::Bold))?;
                    None
                }
                Style::Faint => {
                    queue!(out, SetAttribute(Attribute::Dim))?;
                    None
                }
                Style::Good => Some(Color::DarkGreen),
                Style::Bad => Some(Color::DarkRed),
                Style::Attention => Some(Color::DarkYellow),
            };
            if let Some(colour) = colour.filter(|_| self.is_coloured) {
                queue!(out, SetForegroundColor(colour))?;
            }
            queue!(out, Print(guarded(text)), ResetColor, SetAttribute(Attribute::Reset))?;
        }
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        close();
    }
}

/// Returns the size of the terminal. One that does not know its size has the usual one.
fn size_or_usual() -> io::Result<(u16, u16)> {
    let usual = |size: u16, usual: u16| if size == 0 { usual } else { size };
    let (columns, lines) = size()?;
    Ok((usual(columns, 80), usual(lines, 24)))
}

/// Waits for the next keys. Returns none for another event, such as a change of the size.
pub(super) fn read_keys() -> io::Result<Vec<Key>> {
    Ok(keys_of(event::read()?))
}

/// Returns the keys of an event. Of a pasted text, line breaks are spaces.
fn keys_of(event: Event) -> Vec<Key> {
    let pasted = |letter: char| Key::Pasted(if letter.is_control() { ' ' } else { letter });
    match event {
        Event::Key(key) if key.kind != KeyEventKind::Release => key_of(key).into_iter().collect(),
        Event::Paste(text) => text.chars().map(pasted).collect(),
        _ => Vec::new(),
    }
}

fn key_of(key: KeyEvent) -> Option<Key> {
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return match key.code {
            KeyCode::Char('c') => Some(Key::Interrupt),
            KeyCode::Char('l') => Some(Key::Redraw),
            KeyCode::Char('u') => Some(Key::Clear),
            _ => None,
        };
    }
    Some(match key.code {
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::Left => Key::Left,
        KeyCode::Right => Key::Right,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Home => Key::Home,
        KeyCode::End => Key::End,
        KeyCode::Tab => Key::Tab,
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc => Key::Escape,
        KeyCode::Backspace => Key::Backspace,
        KeyCode::Char(letter) => Key::Char(letter),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_the_terminal_are_those_of_the_model() {
        let plain = |code| KeyEvent::new(code, KeyModifiers::NONE);
        let control = |letter| KeyEvent::new(KeyCode::Char(letter), KeyModifiers::CONTROL);
        for (pressed, key) in [
            (plain(KeyCode::Up), Some(Key::Up)),
            (plain(KeyCode::Char('c')), Some(Key::Char('c'))),
            (plain(KeyCode::F(1)), None),
            (control('c'), Some(Key::Interrupt)),
            (control('q'), None),
        ] {
            assert_eq!(keys_of(Event::Key(pressed)), key.into_iter().collect::<Vec<_>>(), "{pressed:?}");
        }
        assert_eq!(keys_of(Event::Paste("c\ny".into())), ['c', ' ', 'y'].map(Key::Pasted));
    }
}
