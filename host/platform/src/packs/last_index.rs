//! The last index of each place that a pack was installed from. A lock records them, so that no index is replaced by an
//! older one, which hides later versions of packs.

use std::path::Path;

use super::{CheckedIndex, InstallError, LastIndex, Lock, Source};

impl CheckedIndex {
    /// Fails if this index is older than the last one of its place that a pack was installed from, or if its signature is
    /// missing or of another key. Keys that the trust file names may replace each other.
    pub fn check_succeeds(&self, lock: &Lock) -> Result<(), InstallError> {
        let Some(last) = lock.last_index(&self.key(lock)) else { return Ok(()) };
        match self.older_reason(last, "the last one that a pack was installed from") {
            Some(why) => Err(InstallError::Older { place: self.place.to_string(), why }),
            None => Ok(()),
        }
    }

    /// Returns a warning for the publisher if people who have installed packs from `earlier`, an index of the same place,
    /// will get this index refused.
    pub fn refusal_after(&self, earlier: &CheckedIndex) -> Option<String> {
        let why = self.older_reason(&earlier.as_last()?, "the one that it replaces")?;
        Some(format!("who has installed packs from the index before does not accept this one: {why}"))
    }

    /// Records in a lock that a pack was installed from this index.
    pub fn record(&self, lock: &mut Lock) {
        lock.set_last_index(self.key(lock), self.as_last());
    }

    fn as_last(&self) -> Option<LastIndex> {
        let issue = self.issue()?;
        let signer = self.signer.as_ref().map(|signer| signer.key);
        Some(LastIndex { serial: issue.serial, date: issue.date.to_owned(), digest: self.digest.clone(), signer })
    }

    /// Returns why this index does not follow an earlier one, or `None` if it does. `earlier` names that one.
    fn older_reason(&self, last: &LastIndex, earlier: &str) -> Option<String> {
        let before = format!("{earlier} has the number {} of {}", last.serial, last.date);
        let Some(issue) = self.issue() else { return Some(format!("it has no serial number, but {before}")) };
        let number = format!("its serial number is {} of {}", issue.serial, issue.date);
        if issue.serial < last.serial {
            return Some(format!("{number}, but {before}"));
        }
        if issue.serial == last.serial && self.digest != last.digest {
            return Some(format!(
                "{number} with the content {}, but {before} with the content {}",
                self.digest, last.digest
            ));
        }
        let old = last.signer?;
        match &self.signer {
            Some(signer) if signer.key == old || signer.name.is_some() => None,
            Some(signer) => Some(format!("it is signed by {}, but {before} and was signed by {old}", signer.key)),
            None => Some(format!("it is not signed, but {before} and was signed by {old}")),
        }
    }

    /// Returns the name of the place in a lock. For a file below the lock's folder it is the path from there. Links are not
    /// followed, so that a link to an older index is noticed, and `..` stays.
    fn key(&self, lock: &Lock) -> String {
        let Source::File(file) = &self.place else { return self.place.to_string() };
        let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let (file, lock) = (absolute(file), absolute(lock.file()));
        let below = lock.parent().and_then(|folder| file.strip_prefix(folder).ok());
        below.unwrap_or(&file).display().to_string()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use std::fs;

    use super::*;
    use crate::packs::{Index, PackKey, Trust, indexed::tests::entry};

    /// 2026-01-31T12:00:00Z in milliseconds since 1970.
    const NOON: u64 = 1_769_860_800_000;

    fn read(place: &str, text: &str, trust: &Trust) -> CheckedIndex {
        let place = if place.contains("://") { Source::Url(place.into()) } else { Source::File(place.into()) };
        CheckedIndex::read(place, text.as_bytes(), trust).unwrap()
    }

    fn numbered(serial: u64, key: Option<&PackKey>) -> String {
        Index::new(vec![entry()], serial, NOON).unwrap().to_text(key)
    }

    fn unnumbered() -> String {
        "{ \"version\": 1, \"index\": { \"packs\": [] } }".to_owned()
    }

    /// Returns why an index is refused after another one of the same place.
    fn after(last: &str, next: &str, trust: &Trust) -> Option<String> {
        let mut lock = Lock::read(Path::new("/srv/flows/flowcell.lock")).unwrap();
        let place = "https://example.com/index.json";
        read(place, last, trust).record(&mut lock);
        read(place, next, trust).check_succeeds(&lock).err().map(|error| error.to_string())
    }

    #[test]
    fn an_index_follows_only_one_with_a_lower_number() {
        let any = Trust::default();
        let other = Index::new(Vec::new(), 7, NOON).unwrap().to_text(None);
        for (last, next, told) in [
            (numbered(7, None), numbered(8, None), None),
            (numbered(7, None), numbered(7, None), None),
            (numbered(7, None), numbered(6, None), Some("number is 6 of 2026-01-31T12:00:00Z, but the last one")),
            (numbered(7, None), other, Some("number is 7 of 2026-01-31T12:00:00Z with the content sha256:")),
            (numbered(7, None), unnumbered(), Some("it has no serial number, but the last one")),
            (unnumbered(), numbered(1, None), None),
            (unnumbered(), unnumbered(), None),
        ] {
            let refused = after(&last, &next, &any);
            match told {
                None => assert_eq!(refused, None, "{next}"),
                Some(told) => assert!(refused.as_ref().is_some_and(|refused| refused.contains(told)), "{refused:?}"),
            }
        }
    }

    #[test]
    fn another_signer_is_refused_unless_the_trust_file_names_it() {
        let folder = tempfile::tempdir().unwrap();
        let [one, two] = ["one", "two"].map(|name| PackKey::make(&folder.path().join(name)).unwrap());
        let any = Trust::default();
        let by = |key: &PackKey, serial: u64| numbered(serial, Some(key));
        assert_eq!(after(&by(&one, 7), &by(&one, 8), &any), None);
        assert_eq!(after(&numbered(7, None), &by(&one, 8), &any), None, "a signature is more than none");
        let refused = after(&by(&one, 7), &numbered(8, None), &any).unwrap();
        assert!(refused.contains("it is not signed, but the last one"), "{refused}");
        let refused = after(&by(&one, 7), &by(&two, 8), &any).unwrap();
        assert!(
            refused.contains(&one.public().to_string()) && refused.contains(&two.public().to_string()),
            "{refused}"
        );
        let file = folder.path().join("trust.yaml");
        let entry =
            |name: &str, key: &PackKey| format!("  {name}: {{ key: \"{}\", packs: [], index: true }}\n", key.public());
        fs::write(&file, format!("unsigned: allow\nkeys:\n{}{}", entry("one", &one), entry("two", &two))).unwrap();
        let both = Trust::read(&file).unwrap();
        assert_eq!(after(&by(&one, 7), &by(&two, 8), &both), None);
        let older = after(&by(&one, 7), &by(&two, 6), &both).unwrap();
        assert!(older.contains("number is 6"), "the number counts for all signers: {older}");
        assert!(after(&by(&one, 7), &numbered(8, None), &both).unwrap().contains("it is not signed"));
    }

    #[test]
    fn each_place_has_its_own_last_index() {
        let any = Trust::default();
        let mut lock = Lock::read(Path::new("/srv/flows/flowcell.lock")).unwrap();
        read("/srv/flows/packs/index.json", &numbered(7, None), &any).record(&mut lock);
        for (place, is_same) in [
            ("/srv/flows/packs/index.json", true),
            ("/srv/flows/./packs//index.json", true),
            ("/srv/packs/index.json", false),
            ("https://example.com/packs/index.json", false),
        ] {
            assert_eq!(read(place, &numbered(6, None), &any).check_succeeds(&lock).is_err(), is_same, "{place}");
        }
        // An index that is accepted on purpose takes the place of the last one.
        read("/srv/flows/packs/index.json", &numbered(3, None), &any).record(&mut lock);
        assert!(read("/srv/flows/packs/index.json", &numbered(4, None), &any).check_succeeds(&lock).is_ok());
        read("/srv/flows/packs/index.json", &unnumbered(), &any).record(&mut lock);
        assert_eq!(lock, Lock::read(lock.file()).unwrap());
    }
}
