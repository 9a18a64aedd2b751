//! Looks for paths of the author's machine in a built pack. Packs are published.

use std::path::{Path, PathBuf};

/// Minimum number of names in a path that is looked for. Shorter ones, such as `/src`, occur in the tools themselves.
const MIN_NAMES: usize = 2;

/// Returns the first of the folders that occurs in a pack with something below it.
pub(super) fn find(pack: &[u8], folders: &[PathBuf]) -> Option<String> {
    folders.iter().filter(|folder| is_telling(folder)).find_map(|folder| {
        let folder = folder.to_str()?;
        let below = format!("{folder}/");
        // Debug information has the folder of the build as a text that ends with a zero.
        let ended = format!("{folder}\0");
        [below, ended].iter().any(|text| has(pack, text.as_bytes())).then(|| folder.to_owned())
    })
}

fn is_telling(folder: &Path) -> bool {
    folder.is_absolute() && folder.components().count() > MIN_NAMES
}

fn has(pack: &[u8], text: &[u8]) -> bool {
    pack.windows(text.len()).any(|window| window == text)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn folders_of_the_author_are_found_in_a_pack() {
        let folders = ["/home/ada/shop", "/home/ada", "/src", "shop"].map(PathBuf::from);
        for (pack, found) in [
            ("x /home/ada/shop/nodes.js y", Some("/home/ada/shop")),
            ("\0/home/ada/shop\0", Some("/home/ada/shop")),
            ("(/home/ada/lib/x.js:1)", Some("/home/ada")),
            ("/home/ada/shop2/x", Some("/home/ada")),
            ("/home/adam/x, /home/ada", None),
            ("/src/lib.rs shop/nodes.js", None),
            ("", None),
        ] {
            assert_eq!(find(pack.as_bytes(), &folders).as_deref(), found, "{pack}");
        }
    }
}
