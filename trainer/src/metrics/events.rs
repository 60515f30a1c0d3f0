//! TensorBoard event files: scalars, text, hyperparameters.
//!
//! Records are framed by tensorboard-rs; events are built here, because it has neither text nor hyperparameters and
//! panics where a disk is full. A resumed run starts a new file, as TensorBoard expects.

use super::{Metrics, MetricsError};
use protobuf::well_known_types::Value;
use protobuf::{Message, RepeatedField};
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};
use tensorboard_proto::event::{Event, SessionLog, SessionLog_SessionStatus};
use tensorboard_proto::plugin_hparams::{HParamsPluginData, SessionStartInfo};
use tensorboard_proto::summary::{Summary, Summary_Value, SummaryMetadata, SummaryMetadata_PluginData};
use tensorboard_proto::tensor::TensorProto;
use tensorboard_proto::tensor_shape::{TensorShapeProto, TensorShapeProto_Dim};
use tensorboard_proto::types::DataType;
use tensorboard_rs::record_writer::RecordWriter;

/// An open event file.
#[derive(Debug)]
pub struct EventFile {
    file: fs_err::File,
}

impl EventFile {
    /// Creates a new file in `dir`; files that are there stay and come before it.
    pub fn create(dir: &Path) -> Result<Self, MetricsError> {
        let mut events = Self { file: create_next(dir)? };
        let mut header = Event::new();
        header.set_file_version("brain.Event:2".to_owned());
        events.write(header, 0)?;
        Ok(events)
    }

    /// Takes back whatever earlier files say about `step` and later steps.
    pub fn forget_from(&mut self, step: u64) -> Result<(), MetricsError> {
        let mut log = SessionLog::new();
        log.set_status(SessionLog_SessionStatus::START);
        let mut event = Event::new();
        event.set_session_log(log);
        self.write(event, step)
    }

    /// Writes every number as a scalar, all in one event.
    pub fn scalars(&mut self, step: u64, metrics: &Metrics) -> Result<(), MetricsError> {
        let scalar = |(name, number): (&str, f64)| {
            let mut value = Summary_Value::new();
            value.set_tag(name.to_owned());
            value.set_simple_value(number as f32);
            value
        };
        self.write_values(metrics.iter().map(scalar).collect(), step)
    }

    /// Writes a text (Markdown).
    pub fn text(&mut self, step: u64, tag: &str, markdown: &str) -> Result<(), MetricsError> {
        let mut tensor = tensor_of(DataType::DT_STRING);
        tensor.set_string_val(RepeatedField::from_vec(vec![markdown.as_bytes().to_vec()]));
        self.write_values(vec![plugin_value(tag, "text", Vec::new(), tensor)], step)
    }

    /// Writes the config's values as the hyperparameters of the run.
    pub fn hyperparameters(&mut self, config: &toml::Table) -> Result<(), MetricsError> {
        let mut info = SessionStartInfo::new();
        info.set_start_time_secs(now_s());
        let mut values = Vec::new();
        flatten("", config, &mut values);
        info.mut_hparams().extend(values);
        let mut data = HParamsPluginData::new();
        data.set_session_start_info(info);
        let content = data.write_to_bytes().expect("a message in memory can be written");
        let mut tensor = tensor_of(DataType::DT_FLOAT);
        tensor.set_float_val(vec![0.0]);
        self.write_values(vec![plugin_value("_hparams_/session_start_info", "hparams", content, tensor)], 0)
    }

    fn write_values(&mut self, values: Vec<Summary_Value>, step: u64) -> Result<(), MetricsError> {
        let mut summary = Summary::new();
        summary.set_value(RepeatedField::from_vec(values));
        let mut event = Event::new();
        event.set_summary(summary);
        self.write(event, step)
    }

    fn write(&mut self, mut event: Event, step: u64) -> Result<(), MetricsError> {
        event.set_wall_time(now_s());
        event.set_step(i64::try_from(step).expect("a run has fewer than 2^63 steps"));
        let data = event.write_to_bytes().expect("a message in memory can be written");
        let mut record = Vec::with_capacity(data.len() + 16);
        RecordWriter::new(&mut record).write(&data)?;
        // One write a record: a reader may look at any time.
        self.file.write_all(&record)?;
        Ok(())
    }
}

fn create_next(dir: &Path) -> std::io::Result<fs_err::File> {
    fs_err::create_dir_all(dir)?;
    // TensorBoard reads the files of a folder in the order of their names.
    let second = now_s() as u64;
    let mut number = 0;
    loop {
        let path = dir.join(format!("events.out.tfevents.{second:010}.napmem.{}.{number}", std::process::id()));
        match fs_err::OpenOptions::new().append(true).create_new(true).open(path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => number += 1,
            result => return result,
        }
    }
}

fn now_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// An empty tensor of shape `[1]`.
fn tensor_of(dtype: DataType) -> TensorProto {
    let mut dim = TensorShapeProto_Dim::new();
    dim.set_size(1);
    let mut shape = TensorShapeProto::new();
    shape.set_dim(RepeatedField::from_vec(vec![dim]));
    let mut tensor = TensorProto::new();
    tensor.set_dtype(dtype);
    tensor.set_tensor_shape(shape);
    tensor
}

fn plugin_value(tag: &str, plugin: &str, content: Vec<u8>, tensor: TensorProto) -> Summary_Value {
    let mut data = SummaryMetadata_PluginData::new();
    data.set_plugin_name(plugin.to_owned());
    data.set_content(content);
    let mut metadata = SummaryMetadata::new();
    metadata.set_plugin_data(data);
    let mut value = Summary_Value::new();
    value.set_tag(tag.to_owned());
    value.set_metadata(metadata);
    value.set_tensor(tensor);
    value
}

fn flatten(prefix: &str, table: &toml::Table, values: &mut Vec<(String, Value)>) {
    for (key, item) in table {
        let name = format!("{prefix}{key}");
        let mut value = Value::new();
        match item {
            toml::Value::Table(inner) => {
                flatten(&format!("{name}."), inner, values);
                continue;
            }
            toml::Value::Integer(number) => value.set_number_value(*number as f64),
            toml::Value::Float(number) => value.set_number_value(*number),
            toml::Value::Boolean(yes) => value.set_bool_value(*yes),
            toml::Value::String(text) => value.set_string_value(text.clone()),
            other => value.set_string_value(other.to_string()),
        }
        values.push((name, value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tensorboard_rs::masked_crc32c::masked_crc32c;

    /// Events of all files of a folder, in order, with every checksum compared.
    fn read(dir: &Path) -> Vec<Event> {
        let mut files: Vec<_> = fs_err::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        let mut events = Vec::new();
        for file in files {
            let bytes = fs_err::read(file).unwrap();
            let mut rest = bytes.as_slice();
            while !rest.is_empty() {
                let length = u64::from_le_bytes(rest[..8].try_into().unwrap()) as usize;
                let crc = |at: usize| u32::from_le_bytes(rest[at..at + 4].try_into().unwrap());
                let data = &rest[12..12 + length];
                assert_eq!((crc(8), crc(12 + length)), (masked_crc32c(&rest[..8]), masked_crc32c(data)));
                events.push(Event::parse_from_bytes(data).unwrap());
                rest = &rest[16 + length..];
            }
        }
        events
    }

    #[test]
    fn scalars_text_and_hyperparameters_can_be_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = EventFile::create(dir.path()).unwrap();
        let mut metrics = Metrics::new();
        metrics.set("critic/score/mean", 0.25);
        metrics.set("actor/lr", 1e-6);
        file.scalars(3, &metrics).unwrap();
        file.text(3, "trajectory", "**bold**").unwrap();
        file.hyperparameters(&toml::from_str("a = 1\n[b]\nc = \"x\"\n").unwrap()).unwrap();
        let events = read(dir.path());
        assert_eq!(events[0].get_file_version(), "brain.Event:2");
        assert_eq!(events[1].get_step(), 3);
        let scalars = events[1].get_summary().get_value();
        assert_eq!((scalars[0].get_tag(), scalars[0].get_simple_value()), ("critic/score/mean", 0.25));
        assert_eq!((scalars[1].get_tag(), scalars[1].get_simple_value()), ("actor/lr", 1e-6));
        let text = &events[2].get_summary().get_value()[0];
        assert_eq!(text.get_metadata().get_plugin_data().get_plugin_name(), "text");
        assert_eq!(text.get_tensor().get_string_val()[0], b"**bold**");
        let hparams = &events[3].get_summary().get_value()[0];
        let data = HParamsPluginData::parse_from_bytes(hparams.get_metadata().get_plugin_data().get_content());
        let data = data.unwrap();
        let values = data.get_session_start_info().get_hparams();
        assert_eq!(values["a"].get_number_value(), 1.0);
        assert_eq!(values["b.c"].get_string_value(), "x");
    }

    #[test]
    fn resumed_run_has_a_file_of_its_own_that_takes_steps_back() {
        let dir = tempfile::tempdir().unwrap();
        EventFile::create(dir.path()).unwrap();
        EventFile::create(dir.path()).unwrap().forget_from(5).unwrap();
        assert_eq!(fs_err::read_dir(dir.path()).unwrap().count(), 2);
        let events = read(dir.path());
        assert_eq!(events[2].get_session_log().get_status(), SessionLog_SessionStatus::START);
        assert_eq!(events[2].get_step(), 5);
    }
}
