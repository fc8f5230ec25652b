// Does what $BEHAVIOUR says: see languages_test.go.
use std::collections::hash_map::RandomState;
use std::env;
use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, Hasher};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::mem::ManuallyDrop;
use std::os::wasi::io::FromRawFd;
use std::process;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const HELLO: &str = "/data/hello.txt";

// digest reads a file to its end, with reads of so many bytes.
fn digest(file: &mut File, step: usize) {
    let (mut hash, mut total, mut buffer) = (2166136261u32, 0, vec![0; step]);
    loop {
        let n = file.read(&mut buffer).unwrap();
        if n == 0 {
            break;
        }
        total += n;
        for b in &buffer[..n] {
            hash = (hash ^ *b as u32).wrapping_mul(16777619);
        }
    }
    print!("{} {:08x} {}", total, hash, file.read(&mut buffer).unwrap());
}

// stdin without the library's buffer.
fn stdin() -> ManuallyDrop<File> {
    ManuallyDrop::new(unsafe { File::from_raw_fd(0) })
}

fn streams() {
    for i in 0..500 {
        println!("out {}", i);
        eprintln!("err {}", i);
    }
}

fn flood() {
    let all: Vec<u8> = (0..1usize << 20).map(|i| (i * 7 >> 3) as u8).collect();
    io::stdout().write_all(&all).unwrap();
    for i in 0..600 {
        eprintln!("{:099}", i);
    }
}

fn clocks() {
    let first = Instant::now();
    let mut last = first;
    for _ in 0..1000 {
        let next = Instant::now();
        assert!(next >= last);
        last = next;
    }
    let real = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos();
    print!("{} {}", real, if last > first { "rising" } else { "standing" });
}

fn nap() {
    let began = Instant::now();
    thread::sleep(Duration::from_millis(20));
    print!("0 {}", if began.elapsed() >= Duration::from_millis(20) { "slept" } else { "woke early" });
}

// The library hands no randomness out, but seeds its hash tables with it.
fn random() {
    for _ in 0..3 {
        let word = || RandomState::new().build_hasher().finish();
        print!("{:016x}{:016x} ", word(), word());
    }
}

fn memory() {
    let mut all = vec![0u8; 32 << 20];
    let mut sum = 0;
    for i in (0..all.len()).step_by(4096) {
        all[i] = (i >> 12) as u8;
        sum += unsafe { std::ptr::read_volatile(&all[i]) } as u32;
    }
    print!("{}", sum);
}

// number is WASI's of an error.
fn number<T>(result: io::Result<T>) -> i32 {
    match result {
        Ok(_) => 0,
        Err(e) => e.raw_os_error().unwrap(),
    }
}

fn cat(path: &str) {
    match fs::read_to_string(path) {
        Ok(contents) => print!("{}", contents),
        Err(e) => print!("{}", e.raw_os_error().unwrap()),
    }
}

fn seek() -> io::Result<()> {
    let mut file = File::open(HELLO)?;
    let (mut a, mut b) = ([0; 4], [0; 7]);
    file.seek(SeekFrom::End(-5))?;
    file.read_exact(&mut a)?;
    file.seek(SeekFrom::Start(7))?;
    file.read_exact(&mut b)?;
    let back = file.seek(SeekFrom::Current(-7))?;
    let beyond = file.seek(SeekFrom::Start(100))?;
    let n = file.read(&mut a[..1].to_vec())?;
    let before = number(file.seek(SeekFrom::Current(-101)));
    let text = |b: &[u8]| String::from_utf8(b.to_vec()).unwrap();
    print!("{} {} {} {} {} {}", text(&a), text(&b), back, beyond, n, before);
    Ok(())
}

fn kind(t: fs::FileType) -> &'static str {
    if t.is_file() {
        "file"
    } else if t.is_dir() {
        "directory"
    } else {
        "other"
    }
}

fn status() -> io::Result<()> {
    for info in [fs::metadata(HELLO)?, File::open(HELLO)?.metadata()?] {
        print!("{} {} ", info.len(), kind(info.file_type()));
    }
    let empty = fs::metadata("/data/empty")?;
    print!("{} {} {}", kind(fs::metadata("/data/nested")?.file_type()), empty.len(), kind(empty.file_type()));
    Ok(())
}

fn missing() {
    let below = format!("{}/below", HELLO);
    let outside = File::open("/data/../../etc/passwd").is_err();
    print!("{} {} {} {}", number(File::open("/data/none")), number(File::open("/data/none/below")), number(File::open(below)),
        if outside { "closed" } else { "open" });
}

fn writes() {
    let create = OpenOptions::new().write(true).create(true).open("/data/new");
    print!("{} {} {} {} {} ", number(OpenOptions::new().write(true).open(HELLO)), number(create), number(fs::create_dir("/data/dir")),
        number(fs::remove_file(HELLO)), number(fs::rename(HELLO, "/data/other")));
    cat(HELLO);
}

fn list(path: &str) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        names.push(format!("{}:{}", entry.file_name().into_string().unwrap(), kind(entry.file_type()?)));
    }
    names.sort();
    Ok(names)
}

fn lists() -> io::Result<()> {
    let many = list("/many")?;
    print!("{} {} {} {}", list("/data")?.join(" "), many.len(), many[0], many[many.len() - 1]);
    Ok(())
}

fn main() -> io::Result<()> {
    let variable = |name: &str| env::var(name).unwrap();
    match variable("BEHAVIOUR").as_str() {
        "args" => print!("{} {}", env::args().count(), env::args().next().unwrap()),
        "env" => print!("{}|{}|{}|{}", variable("GREETING"), variable("TASK_ID"), variable("EMPTY"),
            if env::var("NONE").is_ok() { "set" } else { "unset" }),
        "stdin" => digest(&mut stdin(), 256 << 10),
        "stdin in small reads" => digest(&mut stdin(), 7),
        "streams" => streams(),
        "flood" => flood(),
        "exit" => {
            print!("left");
            io::stdout().flush()?;
            process::exit(variable("CODE").parse().unwrap())
        }
        "panic" => panic!("went wrong"),
        "trap" => core::arch::wasm32::unreachable(),
        "clocks" => clocks(),
        "sleep" => nap(),
        "random" => random(),
        "memory" => memory(),
        "file" => cat(HELLO),
        "relative path" => cat("data/hello.txt"),
        "large file" => digest(&mut File::open("/data/nested/deep/large")?, 10000),
        "seek" => seek()?,
        "stat" => status()?,
        "missing file" => missing(),
        "writes" => writes(),
        "directories" => lists()?,
        "checkpoint" => cat("/checkpoint"),
        _ => process::exit(1),
    }
    io::stdout().flush()
}
