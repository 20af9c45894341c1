//! A disk that forgets: what SQLite has written and not synced is only in this process's memory, so
//! that killing the process loses what a power cut would lose. For the torture run.
//!
//! It wraps SQLite's own file system. A file's content is kept as an image that all connections of
//! the process share; a sync writes what has changed to the real file. Locks and the log's shared
//! memory go through as they are.
//!
//! By hand, because of the crates for this `sqlite-vfs` has no write-ahead log, and `sqlite-plugin`
//! would have us bring the locks and the shared memory as well.

#![expect(unsafe_code, reason = "SQLite takes a file system only as a table of C functions")]

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, Once, OnceLock, PoisonError};

use rusqlite::ffi;

/// Makes it SQLite's default.
pub(super) fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| unsafe {
        let real = ffi::sqlite3_vfs_find(std::ptr::null());
        assert!(!real.is_null(), "SQLite has no file system");
        let mut shim = *real;
        shim.szOsFile = SHIM_BYTES + (*real).szOsFile;
        shim.zName = CString::new("power-cut").expect("no NUL").into_raw();
        shim.pNext = std::ptr::null_mut();
        shim.pAppData = real.cast();
        shim.xOpen = Some(open);
        shim.xDelete = Some(delete);
        let shim = Box::leak(Box::new(shim));
        assert_eq!(ffi::sqlite3_vfs_register(shim, 1), ffi::SQLITE_OK);
    });
}

/// What the process believes to be in a file.
#[derive(Default)]
struct Image {
    bytes: Vec<u8>,
    /// What the real file does not have yet.
    unsynced: Vec<Range<usize>>,
}

type Shared = Arc<Mutex<Image>>;

/// Files by name.
fn images() -> MutexGuard<'static, HashMap<CString, Shared>> {
    static IMAGES: OnceLock<Mutex<HashMap<CString, Shared>>> = OnceLock::new();
    IMAGES.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

/// Our part of an open file; the real one lies behind it.
#[repr(C)]
struct Shim {
    base: ffi::sqlite3_file,
    image: *const Mutex<Image>,
}

const SHIM_BYTES: c_int = size_of::<Shim>() as c_int;

unsafe fn real_of(file: *mut ffi::sqlite3_file) -> *mut ffi::sqlite3_file {
    unsafe { file.cast::<Shim>().add(1).cast() }
}

unsafe fn image_of<'a>(file: *mut ffi::sqlite3_file) -> MutexGuard<'a, Image> {
    let image = unsafe { &*(*file.cast::<Shim>()).image };
    image.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Calls a method of the real file.
macro_rules! real {
    ($file:expr, $method:ident $(, $argument:expr)*) => {{
        let real = unsafe { real_of($file) };
        match unsafe { (*(*real).pMethods).$method } {
            Some(method) => unsafe { method(real $(, $argument)*) },
            None => ffi::SQLITE_IOERR,
        }
    }};
}

unsafe extern "C" fn open(
    vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    unsafe {
        (*file).pMethods = std::ptr::null();
        let real_vfs: *mut ffi::sqlite3_vfs = (*vfs).pAppData.cast();
        let real = real_of(file);
        let Some(real_open) = (*real_vfs).xOpen else { return ffi::SQLITE_CANTOPEN };
        let opened = real_open(real_vfs, name, real, flags, out_flags);
        if opened != ffi::SQLITE_OK {
            return opened;
        }
        let image = if name.is_null() {
            Shared::default()
        } else {
            let name = CStr::from_ptr(name).to_owned();
            images().entry(name).or_insert_with(|| load(file)).clone()
        };
        (*file.cast::<Shim>()).image = Arc::into_raw(image);
        (*file).pMethods = &METHODS;
    }
    ffi::SQLITE_OK
}

/// The real file's content.
unsafe fn load(file: *mut ffi::sqlite3_file) -> Shared {
    let mut size: ffi::sqlite3_int64 = 0;
    assert_eq!(real!(file, xFileSize, &raw mut size), ffi::SQLITE_OK, "its size");
    let mut bytes = vec![0_u8; usize::try_from(size).expect("a size")];
    if !bytes.is_empty() {
        let length = c_int::try_from(bytes.len()).expect("below 2 GiB");
        let read = real!(file, xRead, bytes.as_mut_ptr().cast(), length, 0);
        assert_eq!(read, ffi::SQLITE_OK, "its content");
    }
    Arc::new(Mutex::new(Image { bytes, unsynced: Vec::new() }))
}

unsafe extern "C" fn delete(
    vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    sync_folder: c_int,
) -> c_int {
    unsafe {
        images().remove(CStr::from_ptr(name));
        let real: *mut ffi::sqlite3_vfs = (*vfs).pAppData.cast();
        (*real).xDelete.map_or(ffi::SQLITE_IOERR, |delete| delete(real, name, sync_folder))
    }
}

static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    // Without memory-mapped files.
    iVersion: 2,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(device_characteristics),
    xShmMap: Some(shm_map),
    xShmLock: Some(shm_lock),
    xShmBarrier: Some(shm_barrier),
    xShmUnmap: Some(shm_unmap),
    xFetch: None,
    xUnfetch: None,
};

unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    let mut images = images();
    let image = unsafe { Arc::from_raw((*file.cast::<Shim>()).image) };
    // The map's and ours: nobody else of this process has it open, and others may write to it now.
    if Arc::strong_count(&image) == 2 {
        unsafe { sync(file, 0) };
        images.retain(|_, other| !Arc::ptr_eq(other, &image));
    }
    drop(images);
    real!(file, xClose)
}

unsafe extern "C" fn read(
    file: *mut ffi::sqlite3_file,
    to: *mut c_void,
    length: c_int,
    from: ffi::sqlite3_int64,
) -> c_int {
    let (Ok(length), Ok(from)) = (usize::try_from(length), usize::try_from(from)) else {
        return ffi::SQLITE_IOERR_READ;
    };
    let image = unsafe { image_of(file) };
    let to = unsafe { std::slice::from_raw_parts_mut(to.cast::<u8>(), length) };
    let there = image.bytes.get(from..).unwrap_or_default();
    let there = &there[..there.len().min(length)];
    to[..there.len()].copy_from_slice(there);
    to[there.len()..].fill(0);
    if there.len() == length { ffi::SQLITE_OK } else { ffi::SQLITE_IOERR_SHORT_READ }
}

unsafe extern "C" fn write(
    file: *mut ffi::sqlite3_file,
    bytes: *const c_void,
    length: c_int,
    at: ffi::sqlite3_int64,
) -> c_int {
    let (Ok(length), Ok(at)) = (usize::try_from(length), usize::try_from(at)) else {
        return ffi::SQLITE_IOERR_WRITE;
    };
    let bytes = unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), length) };
    let mut image = unsafe { image_of(file) };
    let end = at + length;
    if image.bytes.len() < end {
        image.bytes.resize(end, 0);
    }
    image.bytes[at..end].copy_from_slice(bytes);
    image.unsynced.push(at..end);
    ffi::SQLITE_OK
}

unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, size: ffi::sqlite3_int64) -> c_int {
    let Ok(size) = usize::try_from(size) else { return ffi::SQLITE_IOERR_TRUNCATE };
    unsafe { image_of(file) }.bytes.truncate(size);
    ffi::SQLITE_OK
}

unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, _flags: c_int) -> c_int {
    let mut image = unsafe { image_of(file) };
    let size = image.bytes.len();
    for range in std::mem::take(&mut image.unsynced) {
        let range = range.start.min(size)..range.end.min(size);
        let (bytes, at) = (&image.bytes[range.clone()], range.start as ffi::sqlite3_int64);
        let written = real!(file, xWrite, bytes.as_ptr().cast(), bytes.len() as c_int, at);
        if written != ffi::SQLITE_OK {
            return written;
        }
    }
    // That it is on the disk itself makes no difference to a killed process.
    real!(file, xTruncate, size as ffi::sqlite3_int64)
}

unsafe extern "C" fn file_size(
    file: *mut ffi::sqlite3_file,
    size: *mut ffi::sqlite3_int64,
) -> c_int {
    unsafe { *size = image_of(file).bytes.len() as ffi::sqlite3_int64 };
    ffi::SQLITE_OK
}

unsafe extern "C" fn lock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    real!(file, xLock, level)
}

unsafe extern "C" fn unlock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    real!(file, xUnlock, level)
}

unsafe extern "C" fn check_reserved_lock(
    file: *mut ffi::sqlite3_file,
    reserved: *mut c_int,
) -> c_int {
    real!(file, xCheckReservedLock, reserved)
}

unsafe extern "C" fn file_control(
    file: *mut ffi::sqlite3_file,
    operation: c_int,
    argument: *mut c_void,
) -> c_int {
    // The real file must not grow by itself.
    if operation == ffi::SQLITE_FCNTL_SIZE_HINT || operation == ffi::SQLITE_FCNTL_CHUNK_SIZE {
        return ffi::SQLITE_OK;
    }
    real!(file, xFileControl, operation, argument)
}

unsafe extern "C" fn sector_size(file: *mut ffi::sqlite3_file) -> c_int {
    real!(file, xSectorSize)
}

unsafe extern "C" fn device_characteristics(file: *mut ffi::sqlite3_file) -> c_int {
    real!(file, xDeviceCharacteristics)
}

unsafe extern "C" fn shm_map(
    file: *mut ffi::sqlite3_file,
    page: c_int,
    size: c_int,
    extend: c_int,
    at: *mut *mut c_void,
) -> c_int {
    real!(file, xShmMap, page, size, extend, at)
}

unsafe extern "C" fn shm_lock(
    file: *mut ffi::sqlite3_file,
    offset: c_int,
    count: c_int,
    flags: c_int,
) -> c_int {
    real!(file, xShmLock, offset, count, flags)
}

unsafe extern "C" fn shm_barrier(file: *mut ffi::sqlite3_file) {
    unsafe {
        let real = real_of(file);
        if let Some(barrier) = (*(*real).pMethods).xShmBarrier {
            barrier(real);
        }
    }
}

unsafe extern "C" fn shm_unmap(file: *mut ffi::sqlite3_file, delete: c_int) -> c_int {
    real!(file, xShmUnmap, delete)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::Connection;

    #[test]
    fn what_is_not_synced_is_seen_by_all_and_is_not_on_the_disk() {
        install();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        let writer = Connection::open(&path).unwrap();
        let reader = Connection::open(&path).unwrap();
        writer
            .execute_batch(
                "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; CREATE TABLE t (x);",
            )
            .unwrap();
        let log = folder.path().join("a.db-wal");
        let synced = std::fs::metadata(&log).unwrap().len();
        assert!(synced > 0);
        writer.execute_batch("PRAGMA synchronous = OFF; INSERT INTO t VALUES (1);").unwrap();
        assert_eq!(std::fs::metadata(&log).unwrap().len(), synced);
        let count = |connection: &Connection| -> i64 {
            connection.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).unwrap()
        };
        assert_eq!((count(&writer), count(&reader)), (1, 1));
        writer.execute_batch("PRAGMA synchronous = FULL; INSERT INTO t VALUES (2);").unwrap();
        assert!(std::fs::metadata(&log).unwrap().len() > synced);
        drop((writer, reader));
        let again = Connection::open(&path).unwrap();
        assert_eq!(count(&again), 2);
    }
}
