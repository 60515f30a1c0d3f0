use super::*;
use parquet::basic::Compression;
use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;

fn file(dir: &tempfile::TempDir, name: &str, bytes: &[u8]) -> PathBuf {
    let path = dir.path().join(name);
    fs::write(&path, bytes).unwrap();
    path
}

fn read_bytes(bytes: &[u8]) -> Result<Vec<Item<Value>>, DatasetError> {
    let dir = tempfile::tempdir().unwrap();
    read(&file(&dir, "data.txt", bytes))
}

#[test]
fn content_decides_not_the_name() {
    type Case<'a> = (&'a [u8], &'a [(&'a str, Value)]);
    let cases: [Case; 8] = [
        (b"[{\"a\": 1}, {\"a\": 2}]", &[("item 1", json!({"a": 1})), ("item 2", json!({"a": 2}))]),
        (b"{\"a\": 1}\n\n{\"a\": 2}\n", &[("line 1", json!({"a": 1})), ("line 3", json!({"a": 2}))]),
        (b"{\n \"a\": 1\n}\n", &[("item 1", json!({"a": 1}))]),
        (b"\xEF\xBB\xBFa,b\n1,\n", &[("line 2", json!({"a": "1", "b": ""}))]),
        (
            b"a,b\r\n\"x, \"\"y\"\"\nz\",2\r\nq,3\r\n",
            &[("line 2", json!({"a": "x, \"y\"\nz", "b": "2"})), ("line 4", json!({"a": "q", "b": "3"}))],
        ),
        (b"a,b\n", &[]),
        (b"[]", &[]),
        (b"\xEF\xBB\xBF [{}]", &[("item 1", json!({}))]),
    ];
    for (bytes, expected) in cases {
        let found: Vec<(String, Value)> =
            read_bytes(bytes).unwrap().into_iter().map(|item| (item.place, item.value)).collect();
        let expected: Vec<(String, Value)> =
            expected.iter().map(|(place, v)| ((*place).to_owned(), v.clone())).collect();
        assert_eq!(found, expected, "{}", String::from_utf8_lossy(bytes));
    }
}

#[test]
fn faults_say_where() {
    let cases: [(&[u8], &str); 10] = [
        (b" \n", "data.txt: is empty; items as JSON"),
        (b"a,b\n1,2,3\n", "data.txt: line 2: 3 fields, but the header has 2"),
        (b"a,b\r\n1,2\r\n\r\n3\r\n", "data.txt: line 4: 1 fields, but the header has 2"),
        (b"a,b,a\n", "line 1: the column `a` appears twice"),
        (b"a\n\xFF\n", "must be UTF-8, but byte 3 is not"),
        (b"{\"a\": 1}\n{\"a\": \n", "data.txt: line 2: EOF"),
        (b"{\n \"a\": ,\n}", "expected value at line 2 column 7"),
        (b"[{\"a\": 1}, {\"a\" 2}]", "expected `:`"),
        (b"[1, 2", "EOF"),
        (b"PAR1", "as Parquet: "),
    ];
    for (bytes, expected) in cases {
        let error = read_bytes(bytes).expect_err(expected).to_string();
        assert!(error.contains(expected) && error.contains("data.txt"), "{error} / {expected}");
    }
    let dir = tempfile::tempdir().unwrap();
    let path = file(&dir, "data.json", b"[{\"a\": 1}, {\"a\": \"x\"}]");
    let error = read::<std::collections::BTreeMap<String, u8>>(&path).unwrap_err().to_string();
    assert!(error.contains("data.json: item 2: invalid type"), "{error}");
    assert!(read::<Value>(&dir.path().join("none.csv")).unwrap_err().to_string().contains("none.csv"));
}

/// A table of a text and a number, named as if it were a CSV.
fn write_parquet(path: &Path, compression: Compression) {
    let schema = "message row { required binary name (UTF8); required int64 count; }";
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let properties = Arc::new(WriterProperties::builder().set_compression(compression).build());
    let mut writer = SerializedFileWriter::new(std::fs::File::create(path).unwrap(), schema, properties).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    let names = [ByteArray::from("é"), ByteArray::from("['a']")];
    column.typed::<ByteArrayType>().write_batch(&names, None, None).unwrap();
    column.close().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<Int64Type>().write_batch(&[1, 2], None, None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();
}

#[test]
fn rows_of_parquet_are_read() {
    let zstd = Compression::ZSTD(parquet::basic::ZstdLevel::default());
    for compression in [Compression::UNCOMPRESSED, Compression::SNAPPY, zstd] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data.csv");
        write_parquet(&path, compression);
        let items: Vec<Item<Fields>> = read(&path).unwrap();
        assert_eq!(items[0].value["name"], "é");
        assert_eq!((items[1].place.as_str(), &items[1].value["count"]), ("row 2", &json!(2)));
        assert_eq!(Row::new(&path, &items[1]).texts("name").unwrap(), ["a"]);
    }
}

#[test]
fn fields_of_a_row() {
    let path = Path::new("q.csv");
    let fields = json!({"a": " x ", "n": 3, "blank": " ", "null": null, "list": "['it\\'s', \"b\"]", "bad": "[1"});
    let item = Item { place: "line 2".to_owned(), value: fields.as_object().unwrap().clone() };
    let row = Row::new(path, &item);
    assert_eq!(row.text("a").unwrap().as_deref(), Some("x"));
    assert_eq!(row.required("n").unwrap(), "3");
    for missing in ["blank", "null", "none"] {
        assert_eq!(row.text(missing).unwrap(), None);
    }
    assert_eq!(row.texts("list").unwrap(), ["it's", "b"]);
    assert_eq!(row.texts("none").unwrap(), Vec::<String>::new());
    let cases = [
        (row.required("blank").unwrap_err(), "q.csv: line 2: `blank`: must not be empty; the fields are `a`, `n`"),
        (row.texts("n").unwrap_err(), "`n`: must be a list of texts, got 3"),
        (
            row.nested("bad").unwrap_err(),
            "`bad`: is neither JSON nor a Python literal: character 3: expected `,` or `]`",
        ),
    ];
    for (error, expected) in cases {
        assert!(error.to_string().contains(expected), "{error} / {expected}");
    }
}
