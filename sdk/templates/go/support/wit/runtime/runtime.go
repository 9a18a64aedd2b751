// Package runtime gives the generated code memory that its host may write into and read.
package runtime

import (
	"runtime"
	"unsafe"
)

// Allocate returns memory from Go's heap, pinned so that it does not move. It is aligned to 8 bytes, which suits every
// type of WIT.
func Allocate(pinner *runtime.Pinner, size, _ uintptr) unsafe.Pointer {
	place := unsafe.Pointer(unsafe.SliceData(make([]uint64, (size+7)/8)))
	if size > 0 {
		pinner.Pin(place)
	}
	return place
}

// Unpin does nothing: the generated code calls it to free memory that the host has written, but an instance runs only
// once.
func Unpin() {}

// The free part of the memory that the host may write to.
var free, end uintptr

// Go takes memory in pages.
const page = 64 << 10

// allocate returns memory to the host, which asks for it before Go's runtime has started and while Go code must not run.
// So the memory cannot come from Go's heap. It comes from Go's own sbrk, because Go expects that only its runtime grows
// the memory.
//
//go:wasmexport cabi_realloc
func allocate(_ unsafe.Pointer, _, align, size uintptr) unsafe.Pointer {
	place := (free + align - 1) &^ (align - 1)
	if place+size > end {
		place = uintptr(sbrk(size))
		end = place + (size+page-1)&^(page-1)
	}
	free = place + size
	return unsafe.Pointer(place)
}

//go:linkname sbrk runtime.sbrk
func sbrk(size uintptr) unsafe.Pointer
