//! Levels 3 and 4: when tracks and profile are revised, and what a revision may write.

use super::ask::{Asked, Subject};
use super::error::BuildError;
use super::language::LanguageRole;
use super::pipeline::UserBuild;
use super::progress::{BuildEvent, Trigger};
use super::records::record_json;
use super::reply::{
    ProfileLine, ProfileReply, TrackAction, TrackOperation, TracksReply, check_text, dedup, one_line, parse,
};
use super::settings::BuildSettings;
use crate::pyramid::{MAX_PROFILE_CHARS, MAX_TRACKS, Profile, Record, Track};
use serde_json::{Value, json};

/// Characters of a profile's headings and blank lines.
const NUM_FRAME_CHARS: usize = 110;
/// Fields of the profile; one without evidence stays empty.
const PROFILE_FIELDS: [&str; 3] = ["# Who the user is", "# Long-term preferences", "# How to talk to the user"];

impl UserBuild<'_> {
    /// Takes all pending records into the tracks, then revises the profile if that changed a track.
    pub(super) fn revise(&mut self, trigger: Trigger) -> Result<(), BuildError> {
        self.caller.event(&BuildEvent::Tracks(trigger));
        self.report.num_track_revisions += 1;
        let pending = std::mem::take(&mut self.state.pending);
        self.state.num_new_since_tracks = 0;
        for chunk in pending.chunks(self.caller.shared.settings.max_pending_per_call) {
            self.revise_tracks(chunk)?;
        }
        if self.state.is_profile_due {
            self.revise_profile(Trigger::TracksUpdated)?;
        }
        Ok(())
    }

    fn revise_tracks(&mut self, pending: &[String]) -> Result<(), BuildError> {
        let settings = self.caller.shared.settings;
        let data = &self.draft.data;
        let records: Vec<&Record> = data.records.iter().filter(|record| pending.contains(&record.id)).collect();
        let shown = json!({
            "tracks": data.tracks.iter().map(track_json).collect::<Vec<_>>(),
            "pending": records.iter().map(|record| record_json(record)).collect::<Vec<_>>(),
            "limits": {
                "max_tracks": MAX_TRACKS,
                "max_summary_chars": settings.max_summary_chars,
                "max_narrative_chars": settings.max_narrative_chars,
            },
        });
        let subject = Subject { messages: vec![], records: pending.to_vec() };
        let tracks = &data.tracks;
        let read = |reply: &str| apply(parse(reply)?, tracks, &records, settings);
        match self.caller.ask(LanguageRole::Tracks, &shown, subject, read)? {
            Asked::Skipped(failure) => self.fail(failure),
            Asked::Read(revised) if revised != self.draft.data.tracks => {
                self.draft.data.tracks = revised;
                self.drop_lost_profile_evidence();
                self.state.is_profile_due = true;
            }
            Asked::Read(_) => {}
        }
        Ok(())
    }

    /// A merge ends a track that the profile may rest on. Until the profile is written anew, which comes next, lines
    /// that only that track supported have to go: the next revision may be refused.
    fn drop_lost_profile_evidence(&mut self) {
        let names: Vec<&str> = self.draft.data.tracks.iter().map(|track| track.name.as_str()).collect();
        let is_lost = |name: &String| !names.contains(&name.as_str());
        if self.draft.data.profile.evidence.iter().any(is_lost) {
            self.draft.data.profile = reduce_profile(&self.draft.data.profile, |name| names.contains(&name));
        }
    }

    /// Writes the profile anew from the tracks.
    pub(super) fn revise_profile(&mut self, trigger: Trigger) -> Result<(), BuildError> {
        self.caller.event(&BuildEvent::Profile(trigger));
        self.report.num_profile_revisions += 1;
        self.state.num_new_since_profile = 0;
        self.state.is_profile_due = false;
        if self.draft.data.tracks.is_empty() {
            self.draft.data.profile = Profile::default();
            return Ok(());
        }
        let tracks = &self.draft.data.tracks;
        let data = json!({
            "tracks": tracks.iter().map(track_json).collect::<Vec<_>>(),
            "limits": {"max_chars": MAX_PROFILE_CHARS - NUM_FRAME_CHARS},
        });
        let read = |reply: &str| profile(parse(reply)?, tracks);
        let subject = Subject { messages: vec![], records: vec![] };
        match self.caller.ask(LanguageRole::Profile, &data, subject, read)? {
            Asked::Skipped(failure) => self.fail(failure),
            Asked::Read(profile) => self.draft.data.profile = profile,
        }
        Ok(())
    }
}

fn track_json(track: &Track) -> Value {
    json!({
        "name": track.name, "title": track.title, "created": track.created, "updated": track.updated,
        "summary": track.summary, "narrative": track.narrative, "num_evidence": track.evidence.len(),
    })
}

/// The tracks after all operations, or what is wrong with one of them; then none is applied.
fn apply(
    reply: TracksReply,
    tracks: &[Track],
    pending: &[&Record],
    settings: &BuildSettings,
) -> Result<Vec<Track>, String> {
    let mut operations: Vec<(usize, TrackOperation)> = reply.operations.into_iter().enumerate().collect();
    // Merges free places for what is created.
    operations.sort_by_key(|(_, operation)| operation.action);
    let mut revised = tracks.to_vec();
    for (at, operation) in operations {
        write(&mut revised, operation, pending, settings).map_err(|why| format!("`operations[{at}]`: {why}"))?;
    }
    if revised.len() > MAX_TRACKS {
        return Err(format!("{} tracks in the end, at most {MAX_TRACKS} are allowed: merge some", revised.len()));
    }
    // Files are read back in the order of their names.
    revised.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(revised)
}

fn write(
    tracks: &mut Vec<Track>,
    operation: TrackOperation,
    pending: &[&Record],
    settings: &BuildSettings,
) -> Result<(), String> {
    let TrackOperation { action, name, from, title, summary, narrative, mut evidence } = operation;
    dedup(&mut evidence);
    let records = evidence.iter().map(|id| {
        let known = pending.iter().find(|record| record.id == *id);
        known.copied().ok_or_else(|| format!("evidence `{id}` is not the id of a pending record"))
    });
    let records = records.collect::<Result<Vec<&Record>, String>>()?;
    if evidence.is_empty() && action != TrackAction::Merge {
        return Err("`evidence` must list at least one pending record".to_owned());
    }
    if from.is_some() != (action == TrackAction::Merge) {
        return Err("`from` belongs to `merge`, and a merge needs it".to_owned());
    }
    let at = match (action, &name) {
        (TrackAction::Create, None) => {
            let title = title.as_deref().ok_or("`create` needs a `title`")?;
            let track = new_track(title, tracks, &records);
            tracks.push(track);
            tracks.len() - 1
        }
        (TrackAction::Create, Some(_)) => return Err("`create` takes no `name`: it comes from the title".to_owned()),
        (_, name) => position(tracks, name.as_deref())?,
    };
    let ended = from.map(|from| take(tracks, at, &from)).transpose()?;
    let at = ended.as_ref().map_or(at, |(at, _)| *at);
    let track = &mut tracks[at];
    if let Some(title) = title {
        track.title = one_line(&title);
    }
    (track.summary, track.narrative) = (summary.trim().to_owned(), narrative.trim().to_owned());
    if let Some((_, ended)) = ended {
        track.created = track.created.clone().min(ended.created);
        track.updated = track.updated.clone().max(ended.updated);
        track.evidence.extend(ended.evidence);
    }
    for record in records {
        track.created = track.created.clone().min(day(&record.created));
        track.updated = track.updated.clone().max(day(&record.updated));
        track.evidence.push(record.id.clone());
    }
    dedup(&mut track.evidence);
    check(track, settings)
}

/// Form, sizes, and that the file says what was meant.
fn check(track: &Track, settings: &BuildSettings) -> Result<(), String> {
    let texts = [
        ("summary", track.summary.chars().count(), settings.max_summary_chars),
        ("narrative", track.narrative.chars().count(), settings.max_narrative_chars),
        ("file", track.render().chars().count(), settings.max_track_chars),
    ];
    if let Some((what, n, limit)) = texts.iter().find(|(_, n, limit)| n > limit) {
        return Err(format!("the {what} of `{}` has {n} characters, at most {limit} are allowed", track.name));
    }
    if track.summary.is_empty() {
        return Err("`summary` must not be empty".to_owned());
    }
    track.check()?;
    match Track::parse(&track.name, &track.render()) {
        Ok(parsed) if parsed == *track => Ok(()),
        Ok(_) => Err(format!("`{}` would not be read back as it is", track.name)),
        Err(why) => Err(why),
    }
}

fn position(tracks: &[Track], name: Option<&str>) -> Result<usize, String> {
    let name = name.ok_or("`update` and `merge` need the `name` of a track")?;
    tracks.iter().position(|track| track.name == name).ok_or_else(|| format!("there is no track `{name}`"))
}

/// Takes the track that a merge ends; gives the position of the one that stays as well.
fn take(tracks: &mut Vec<Track>, stays: usize, from: &str) -> Result<(usize, Track), String> {
    let ends = position(tracks, Some(from))?;
    if ends == stays {
        return Err(format!("`{from}` cannot be merged with itself"));
    }
    Ok((stays - usize::from(ends < stays), tracks.remove(ends)))
}

fn new_track(title: &str, tracks: &[Track], records: &[&Record]) -> Track {
    let title = one_line(title);
    let created = records.iter().map(|record| day(&record.created)).min().unwrap_or_default();
    Track {
        name: free_name(&title, tracks),
        title,
        updated: created.clone(),
        created,
        summary: String::new(),
        narrative: String::new(),
        evidence: vec![],
    }
}

/// A file name from a title that no track has: its ASCII letters and digits, numbered where that is not enough.
pub(super) fn free_name(title: &str, tracks: &[Track]) -> String {
    let mut stem = String::new();
    for c in title.to_lowercase().chars().take(60) {
        match c.is_ascii_alphanumeric() {
            true => stem.push(c),
            false if !stem.is_empty() && !stem.ends_with('-') => stem.push('-'),
            false => {}
        }
    }
    let stem = match stem.trim_end_matches('-') {
        "" | "profile" => "topic",
        stem => stem,
    };
    let is_free = |name: &String| !tracks.iter().any(|track| track.name.eq_ignore_ascii_case(name));
    let numbered = (2..).map(|number| format!("{stem}-{number}.md"));
    std::iter::once(format!("{stem}.md")).chain(numbered).find(is_free).unwrap_or_default()
}

/// The date of a date or a time.
pub(super) fn day(time: &str) -> String {
    time.get(..10).unwrap_or(time).to_owned()
}

/// The profile that a reply asks for, or what is wrong with it.
fn profile(reply: ProfileReply, tracks: &[Track]) -> Result<Profile, String> {
    let read = |field: Vec<ProfileLine>| {
        field.into_iter().map(|line| profile_line(line, tracks)).collect::<Result<Vec<_>, String>>()
    };
    let profile = render_profile(&[read(reply.identity)?, read(reply.preferences)?, read(reply.communication)?]);
    profile.check().map(|()| profile)
}

fn profile_line(line: ProfileLine, tracks: &[Track]) -> Result<(String, Vec<String>), String> {
    let (text, mut names) = (one_line(&line.text), line.tracks);
    check_text(&text, MAX_PROFILE_CHARS)?;
    dedup(&mut names);
    if names.is_empty() {
        return Err(format!("the line {text:?} names no track that says so"));
    }
    names.iter().try_for_each(|name| position(tracks, Some(name)).map(|_| ()))?;
    Ok((text, names))
}

/// Each line ends with the tracks it rests on, so that it can be told which have to go with a track.
fn render_profile(fields: &[Vec<(String, Vec<String>)>; 3]) -> Profile {
    let mut evidence: Vec<String> = fields.iter().flatten().flat_map(|(_, names)| names.clone()).collect();
    dedup(&mut evidence);
    evidence.sort();
    if evidence.is_empty() {
        return Profile::default();
    }
    let mut body = String::new();
    for (heading, lines) in PROFILE_FIELDS.iter().zip(fields) {
        body.push_str(&format!("{heading}\n"));
        for (text, names) in lines {
            body.push_str(&format!("- {text} [{}]\n", names.join(", ")));
        }
        body.push('\n');
    }
    Profile::new(&body, evidence)
}

/// The profile with only those lines all of whose tracks are `kept`; lines that name none count as resting on all.
pub(super) fn reduce_profile(profile: &Profile, kept: impl Fn(&str) -> bool) -> Profile {
    let all_kept = profile.evidence.iter().all(|name| kept(name));
    let mut evidence: Vec<String> = Vec::new();
    let mut body: Vec<&str> = Vec::new();
    let text = profile.text.lines().take_while(|line| line.trim_end() != "## Evidence");
    for line in text {
        let is_heading = line.starts_with('#') || line.trim().is_empty();
        let names: Option<Vec<&str>> = named_tracks(line)
            .map(|names| names.split(", ").collect())
            .filter(|names: &Vec<&str>| names.iter().all(|name| profile.evidence.iter().any(|known| known == name)));
        match names {
            _ if is_heading => body.push(line),
            Some(names) if names.iter().all(|name| kept(name)) => {
                evidence.extend(names.into_iter().map(str::to_owned));
                body.push(line);
            }
            None if all_kept => {
                evidence.extend(profile.evidence.iter().cloned());
                body.push(line);
            }
            _ => {}
        }
    }
    dedup(&mut evidence);
    evidence.sort();
    if evidence.is_empty() { Profile::default() } else { Profile::new(&body.join("\n"), evidence) }
}

/// `a.md, b.md` of `- text [a.md, b.md]`.
fn named_tracks(line: &str) -> Option<&str> {
    line.trim_end().strip_suffix(']')?.rsplit_once(" [").map(|(_, names)| names)
}
