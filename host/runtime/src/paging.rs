//! Pages of lists, limited by the number of items and by their bytes.

/// The maximum bytes of a page, as JSON text.
pub const PAGE_BYTES: u64 = 16 << 20;

/// The maximum content of a page.
#[derive(Clone, Copy, Debug)]
pub struct PageLimits {
    /// Maximum number of items.
    pub items: usize,
    /// Maximum bytes of the JSON texts of the items. A page has at least one item.
    pub bytes: u64,
}

/// Counts the items and the bytes of a page while it is filled.
#[derive(Clone, Copy, Debug)]
pub struct Filling {
    most: PageLimits,
    items: usize,
    bytes: u64,
}

impl Filling {
    /// Begins a page without items.
    pub fn new(most: PageLimits) -> Filling {
        Filling { most, items: 0, bytes: 0 }
    }

    /// Returns the bytes that are left on the page.
    pub fn left(&self) -> u64 {
        self.most.bytes.saturating_sub(self.bytes)
    }

    /// Returns the bytes of the items on the page.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns true if the page has the maximum number of items.
    pub fn is_full(&self) -> bool {
        self.items >= self.most.items
    }

    /// Returns true if an item of this size fits. The first one always fits.
    pub fn fits(&self, bytes: u64) -> bool {
        !self.is_full() && (self.items == 0 || bytes <= self.left())
    }

    /// Counts an item of this size, if it fits. Returns whether it fits.
    pub fn take(&mut self, bytes: u64) -> bool {
        let fits = self.fits(bytes);
        if fits {
            self.add(bytes);
        }
        fits
    }

    /// Counts an item of this size.
    pub fn add(&mut self, bytes: u64) {
        self.items += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_one_item_and_no_more_than_it_may() {
        let taken = |most: PageLimits, sizes: &[u64]| {
            let mut filling = Filling::new(most);
            sizes.iter().take_while(|size| filling.take(**size)).count()
        };
        for (items, bytes, sizes, expected) in [
            (3, 10, &[20, 1][..], 1),
            (3, 10, &[4, 6, 0, 0], 3),
            (9, 10, &[4, 7, 1], 1),
            (2, 10, &[1, 1, 1], 2),
            (9, 10, &[u64::MAX, u64::MAX], 1),
        ] {
            assert_eq!(taken(PageLimits { items, bytes }, sizes), expected, "{sizes:?}");
        }
    }
}
