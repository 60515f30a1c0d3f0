//! A pyramid as one HTML page that needs nothing else: for looking at, offline, and for showing to somebody.
//!
//! The page holds the pyramid as JSON and draws it in the browser with text nodes alone, so that nothing in a memory can become
//! markup or script.

use super::Pyramid;
use serde_json::json;

const PAGE: &str = include_str!("page.html");
const DATA_MARK: &str = "/*DATA*/";

/// The page: levels, counts, timeline, links between levels both ways, update history, and a search box.
pub fn render_page(pyramid: &Pyramid) -> String {
    let data = pyramid.data();
    let tracks: Vec<_> = data
        .tracks
        .iter()
        .map(|track| {
            json!({
                "name": track.name, "title": track.title, "created": track.created, "updated": track.updated,
                "summary": track.summary, "narrative": track.narrative, "evidence": track.evidence,
            })
        })
        .collect();
    let shown = json!({
        "user": pyramid.user(), "messages": data.messages, "records": data.records, "tracks": tracks,
        "profile": { "text": data.profile.text, "evidence": data.profile.evidence },
    });
    // `</script>` and `<!--` inside a text would end the element or change how it is read; JSON allows the escape.
    PAGE.replacen(DATA_MARK, &shown.to_string().replace('<', "\\u003c"), 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::Embed;
    use crate::pyramid::HashedNgramEmbedder;
    use std::sync::Arc;

    #[test]
    fn nothing_said_becomes_markup() {
        let user = crate::world::generate(1, 1).remove(0);
        let mut data = user.pyramid;
        let said = "</script><script>alert(1)</script><!-- \u{202e} /*DATA*/ & \u{1f642}";
        data.messages[0].content = said.to_owned();
        let embedder: Arc<dyn Embed> = Arc::new(HashedNgramEmbedder::default());
        let page = render_page(&Pyramid::from_data("u000", data.clone(), &embedder).expect("a sound pyramid"));
        assert_eq!(page.matches("</script>").count(), PAGE.matches("</script>").count());
        let start = page.find("id=\"data\">").expect("the data element") + "id=\"data\">".len();
        let end = start + page[start..].find("</script>").expect("its end");
        let shown: serde_json::Value = serde_json::from_str(&page[start..end]).expect("JSON");
        assert_eq!(shown["messages"][0]["content"], said);
        assert_eq!(shown["records"].as_array().map(Vec::len), Some(data.records.len()));
    }
}
