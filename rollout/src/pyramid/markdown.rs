//! Tracks and the profile as Markdown: reading, writing, and what a well-formed one is.

use super::types::{Profile, Track};

/// Name of the profile for `read_file` and on disk.
pub const PROFILE_NAME: &str = "profile.md";
/// Characters that a profile may have.
pub const MAX_PROFILE_CHARS: usize = 2_000;

const SECTIONS: [&str; 3] = ["## Summary", "## Narrative", "## Evidence"];

impl Track {
    /// Reads `tracks/<name>`; the error says what was found and what is allowed.
    pub fn parse(name: &str, text: &str) -> Result<Self, String> {
        check_track_name(name)?;
        let rest = text.strip_prefix("---\n").ok_or("line 1 must be `---`, the start of the front matter")?;
        let (front, body) = rest.split_once("\n---\n").ok_or("the front matter has no closing `---` line")?;
        let [title, created, updated] = parse_front_matter(front)?;
        let [summary, narrative, evidence] = parse_sections(body)?;
        let track = Self {
            name: name.to_owned(),
            title,
            created,
            updated,
            summary,
            narrative,
            evidence: parse_list(&evidence)?,
        };
        track.check().map(|()| track)
    }

    /// The file's text; [`Track::parse`] gives the track back when [`Track::check`] holds.
    pub fn render(&self) -> String {
        format!(
            "---\ntitle: {}\ncreated: {}\nupdated: {}\n---\n\n{}\n{}\n\n{}\n{}\n\n{}\n{}",
            self.title,
            self.created,
            self.updated,
            SECTIONS[0],
            self.summary,
            SECTIONS[1],
            self.narrative,
            SECTIONS[2],
            render_list(&self.evidence)
        )
    }

    /// Says what keeps the track from being written and read back, if anything does.
    pub fn check(&self) -> Result<(), String> {
        check_track_name(&self.name)?;
        check_front_value("title", &self.title)?;
        check_date("created", &self.created)?;
        check_date("updated", &self.updated)?;
        if self.updated < self.created {
            return Err(format!("`updated` {} is before `created` {}", self.updated, self.created));
        }
        for (section, text) in SECTIONS.iter().zip([&self.summary, &self.narrative]) {
            if text.trim() != text {
                return Err(format!("section `{section}` begins or ends with white space"));
            }
            if let Some(heading) = text.lines().find(|line| line.starts_with("## ")) {
                return Err(format!("section `{section}` holds a heading of its own level: `{heading}`"));
            }
        }
        if self.evidence.is_empty() {
            return Err("section `## Evidence` lists no record".to_owned());
        }
        Ok(())
    }
}

impl Profile {
    /// A profile of a body without evidence section and the tracks it rests on.
    pub fn new(body: &str, evidence: Vec<String>) -> Self {
        let text = format!("{}\n\n{}\n{}", body.trim(), SECTIONS[2], render_list(&evidence));
        Self { text, evidence }
    }

    /// Reads `profile.md`; a blank text is the empty profile.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        let num_chars = text.chars().count();
        if num_chars > MAX_PROFILE_CHARS {
            return Err(format!("has {num_chars} characters, at most {MAX_PROFILE_CHARS} are allowed"));
        }
        let mut lines = text.lines();
        if !lines.by_ref().any(|line| line.trim_end() == SECTIONS[2]) {
            return Err("has no `## Evidence` section, and is not empty".to_owned());
        }
        let evidence = parse_list(&lines.collect::<Vec<_>>().join("\n"))?;
        if evidence.is_empty() {
            return Err("section `## Evidence` lists no track, and the profile is not empty".to_owned());
        }
        Ok(Self { text: text.to_owned(), evidence })
    }

    /// Says how the text departs from what [`Profile::parse`] accepts or from `evidence`.
    pub fn check(&self) -> Result<(), String> {
        let parsed = Self::parse(&self.text)?;
        if parsed.evidence != self.evidence {
            return Err(format!("text lists evidence {:?}, the profile holds {:?}", parsed.evidence, self.evidence));
        }
        Ok(())
    }
}

/// A track's name is one plain file name, so that it can name no other file on any system.
pub fn check_track_name(name: &str) -> Result<(), String> {
    let stem = name.strip_suffix(".md").unwrap_or("");
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if stem.is_empty() || !stem.chars().all(is_plain) || name.eq_ignore_ascii_case(PROFILE_NAME) {
        return Err(format!(
            "track name {name:?} must be letters, digits, `-` and `_` followed by `.md`, and not `{PROFILE_NAME}`"
        ));
    }
    Ok(())
}

fn parse_front_matter(front: &str) -> Result<[String; 3], String> {
    const KEYS: [&str; 3] = ["title", "created", "updated"];
    let mut values: [Option<String>; 3] = [None, None, None];
    for line in front.lines().filter(|line| !line.trim().is_empty()) {
        let (key, value) = line.split_once(':').ok_or(format!("front matter line `{line}` is not `key: value`"))?;
        let at = KEYS.iter().position(|known| *known == key.trim());
        let at = at.ok_or(format!("front matter key `{}` is not one of title, created, updated", key.trim()))?;
        if values[at].replace(value.trim().to_owned()).is_some() {
            return Err(format!("front matter key `{}` appears twice", KEYS[at]));
        }
    }
    let mut taken = KEYS.iter().zip(values).map(|(key, value)| value.ok_or(format!("front matter has no `{key}`")));
    let mut next = || taken.next().unwrap_or_else(|| Err("front matter is short".to_owned()));
    Ok([next()?, next()?, next()?])
}

/// The three sections' bodies, trimmed; each must appear once, in order, and no other second-level heading may.
fn parse_sections(body: &str) -> Result<[String; 3], String> {
    let mut bodies: Vec<Vec<&str>> = Vec::new();
    for line in body.lines() {
        if line.starts_with("## ") {
            let expected = SECTIONS.get(bodies.len()).copied().unwrap_or("the end of the file");
            if line.trim_end() != expected {
                return Err(format!("found heading `{line}` where `{expected}` is due"));
            }
            bodies.push(Vec::new());
        } else if let Some(current) = bodies.last_mut() {
            current.push(line);
        } else if !line.trim().is_empty() {
            return Err(format!("found `{line}` where `{}` is due", SECTIONS[0]));
        }
    }
    let texts: Vec<String> = bodies.iter().map(|lines| lines.join("\n").trim().to_owned()).collect();
    let num_found = texts.len();
    texts.try_into().map_err(|_| format!("section `{}` is missing", SECTIONS[num_found]))
}

fn parse_list(section: &str) -> Result<Vec<String>, String> {
    let mut items: Vec<String> = Vec::new();
    for line in section.lines().filter(|line| !line.trim().is_empty()) {
        let item = line.strip_prefix("- ").ok_or(format!("evidence line `{line}` is not `- id`"))?.trim();
        if items.iter().any(|known| known == item) {
            return Err(format!("evidence `{item}` is listed twice"));
        }
        items.push(item.to_owned());
    }
    Ok(items)
}

fn render_list(items: &[String]) -> String {
    items.iter().map(|item| format!("- {item}\n")).collect()
}

fn check_front_value(key: &str, value: &str) -> Result<(), String> {
    if value.is_empty() || value.trim() != value || value.contains(['\n', '\r']) {
        return Err(format!("`{key}` must be one line without outer white space, got {value:?}"));
    }
    Ok(())
}

fn check_date(key: &str, value: &str) -> Result<(), String> {
    match super::validate::is_date(value) {
        true => Ok(()),
        false => Err(format!("`{key}` must be an ISO 8601 date like 2024-02-20, got {value:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn track() -> Track {
        Track {
            name: "work.md".to_owned(),
            title: "Work: the studio".to_owned(),
            created: "2024-01-02".to_owned(),
            updated: "2024-03-04".to_owned(),
            summary: "Opened a studio.".to_owned(),
            narrative: "Looked for a place.\n\nFound one.\n# Not a section".to_owned(),
            evidence: vec!["r1".to_owned(), "r2".to_owned()],
        }
    }

    #[test]
    fn a_track_survives_the_file() {
        assert_eq!(Track::parse("work.md", &track().render()), Ok(track()));
        let empty = Track { summary: String::new(), narrative: String::new(), ..track() };
        assert_eq!(Track::parse("work.md", &empty.render()), Ok(empty));
    }

    #[test]
    fn bad_tracks_say_why() {
        let good = track().render();
        let cases = [
            (good.replacen("---\n", "", 1), "line 1"),
            (good.replace("title: Work: the studio\n", ""), "no `title`"),
            (good.replace("title:", "titel:"), "`titel`"),
            (good.replace("created: 2024-01-02", "created: yesterday"), "got \"yesterday\""),
            (good.replace("updated: 2024-03-04", "updated: 2023-03-04"), "before `created`"),
            (good.replace("updated: 2024-03-04", "created: 2024-03-04"), "twice"),
            (good.replace("## Summary", "## Story"), "`## Story`"),
            (good.replace("## Evidence\n- r1\n- r2\n", ""), "`## Evidence` is missing"),
            (good.replace("- r1\n- r2\n", ""), "lists no record"),
            (good.replace("- r2", "r2"), "not `- id`"),
            (good.replace("- r2", "- r1"), "listed twice"),
        ];
        for (text, expected) in cases {
            let error = Track::parse("work.md", &text).expect_err(expected);
            assert!(error.contains(expected), "{error} / {expected}");
        }
        for name in ["profile.md", "Profile.MD", "../x.md", "a/b.md", ".md", "x", "a b.md", "x.md.", "ä.md"] {
            assert!(Track::parse(name, &good).is_err(), "{name}");
        }
    }

    #[test]
    fn profiles() {
        let profile = Profile::new("# Ann\nLikes tea.", vec!["work.md".to_owned()]);
        assert_eq!(profile.text, "# Ann\nLikes tea.\n\n## Evidence\n- work.md\n");
        assert_eq!(Profile::parse(&profile.text), Ok(profile));
        assert_eq!(Profile::parse(" \n"), Ok(Profile::default()));
        let long = Profile::new(&"é".repeat(MAX_PROFILE_CHARS), vec!["work.md".to_owned()]);
        assert!(Profile::parse(&long.text).unwrap_err().contains("at most 2000"));
        assert!(Profile::parse("Likes tea.").unwrap_err().contains("no `## Evidence`"));
        assert!(Profile::parse("Likes tea.\n## Evidence\n").unwrap_err().contains("lists no track"));
    }
}
