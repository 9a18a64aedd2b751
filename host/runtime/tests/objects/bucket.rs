//! A bucket in memory that fails on request.

use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use flowcell_runtime::objects::{Bucket, BucketError, Upload};

type Hook = Box<dyn FnOnce() + Send>;

/// A bucket in memory. Clones share it.
#[derive(Clone, Default)]
pub(super) struct Memory(Arc<Inner>);

#[derive(Default)]
struct Inner {
    objects: Mutex<BTreeMap<String, Vec<u8>>>,
    is_away: AtomicBool,
    uploads: AtomicUsize,
    /// Called once before objects are removed.
    before_removal: Mutex<Option<Hook>>,
    /// Called once after an object was written.
    after_upload: Mutex<Option<Hook>>,
}

impl Memory {
    pub(super) fn set_away(&self, is_away: bool) {
        self.0.is_away.store(is_away, Ordering::SeqCst);
    }

    /// Returns the number of objects that were written, without marks.
    pub(super) fn uploads(&self) -> usize {
        self.0.uploads.load(Ordering::SeqCst)
    }

    /// Returns the names of all objects.
    pub(super) fn names(&self) -> Vec<String> {
        self.0.objects.lock().unwrap().keys().cloned().collect()
    }

    /// Returns the names of all objects of tenants.
    pub(super) fn files(&self) -> Vec<String> {
        self.names().into_iter().filter(|name| !name.ends_with("/flowcell-store")).collect()
    }

    /// Changes or removes an object beside its store.
    pub(super) fn set(&self, name: &str, bytes: Option<Vec<u8>>) {
        let mut objects = self.0.objects.lock().unwrap();
        match bytes {
            Some(bytes) => _ = objects.insert(name.to_owned(), bytes),
            None => _ = objects.remove(name),
        }
    }

    pub(super) fn get(&self, name: &str) -> Vec<u8> {
        self.0.objects.lock().unwrap()[name].clone()
    }

    pub(super) fn before_removal(&self, hook: impl FnOnce() + Send + 'static) {
        *self.0.before_removal.lock().unwrap() = Some(Box::new(hook));
    }

    pub(super) fn after_upload(&self, hook: impl FnOnce() + Send + 'static) {
        *self.0.after_upload.lock().unwrap() = Some(Box::new(hook));
    }

    fn answer(&self) -> Result<(), BucketError> {
        if self.0.is_away.load(Ordering::SeqCst) { Err(BucketError::away("no answer")) } else { Ok(()) }
    }
}

impl Bucket for Memory {
    fn put(&self, name: &str, bytes: Vec<u8>) -> Result<(), BucketError> {
        self.answer()?;
        self.0.uploads.fetch_add(1, Ordering::SeqCst);
        assert_eq!(self.0.objects.lock().unwrap().insert(name.to_owned(), bytes), None, "a name was used twice");
        let hook = self.0.after_upload.lock().unwrap().take();
        hook.into_iter().for_each(|hook| hook());
        Ok(())
    }

    fn create(&self, name: &str, bytes: Vec<u8>) -> Result<(), BucketError> {
        self.answer()?;
        self.0.objects.lock().unwrap().entry(name.to_owned()).or_insert(bytes);
        Ok(())
    }

    fn begin(&self, name: &str) -> Result<Box<dyn Upload>, BucketError> {
        self.answer()?;
        Ok(Box::new(Parts { bucket: self.clone(), name: name.to_owned(), parts: Vec::new() }))
    }

    fn read(&self, name: &str, range: Range<u64>) -> Result<Option<Vec<u8>>, BucketError> {
        self.answer()?;
        let objects = self.0.objects.lock().unwrap();
        let Some(bytes) = objects.get(name) else { return Ok(None) };
        let [from, to] = [range.start, range.end].map(|at| (at as usize).min(bytes.len()));
        Ok(Some(bytes[from..to].to_vec()))
    }

    fn remove(&self, names: &[String]) -> Result<(), BucketError> {
        self.answer()?;
        if !names.is_empty() {
            let hook = self.0.before_removal.lock().unwrap().take();
            hook.into_iter().for_each(|hook| hook());
        }
        let mut objects = self.0.objects.lock().unwrap();
        names.iter().for_each(|name| _ = objects.remove(name));
        Ok(())
    }

    fn list(&self, folder: &str, visit: &mut dyn FnMut(&str)) -> Result<(), BucketError> {
        self.answer()?;
        let folder = format!("{folder}/");
        self.names().iter().filter(|name| name.starts_with(&folder)).for_each(|name| visit(name));
        Ok(())
    }
}

struct Parts {
    bucket: Memory,
    name: String,
    parts: Vec<Vec<u8>>,
}

impl Upload for Parts {
    fn add(&mut self, part: Vec<u8>) -> Result<(), BucketError> {
        self.bucket.answer()?;
        if let Some(last) = self.parts.last() {
            assert_eq!(last.len(), flowcell_runtime::limits::OBJECT_PART_BYTES, "only the last part may be smaller");
        }
        self.parts.push(part);
        Ok(())
    }

    fn complete(self: Box<Self>) -> Result<(), BucketError> {
        self.bucket.put(&self.name, self.parts.concat())
    }

    fn discard(self: Box<Self>) {}
}
