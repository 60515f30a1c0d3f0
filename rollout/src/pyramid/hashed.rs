//! An embedder without weights: hashed words and character n-grams.

use super::lexical::terms;
use crate::generate::{Embed, ModelError, TextRole};

/// Words shorter than this are mostly function words and count little.
const SHORT_WORD_CHARS: usize = 4;
const SHORT_WORD_WEIGHT: f32 = 0.2;
const WORD_WEIGHT: f32 = 1.0;
const NGRAM_WEIGHT: f32 = 0.3;
const NGRAM_CHARS: [usize; 2] = [3, 4];

/// Feature hashing (Weinberger et al. 2009) of stemmed words and of the character 3- and 4-grams inside them.
///
/// Needs no download and gives the same bits everywhere. Related spellings come near each other, synonyms do not.
#[derive(Debug, Clone)]
pub struct HashedNgramEmbedder {
    dimension: usize,
}

impl HashedNgramEmbedder {
    /// An embedder of at least one dimension.
    pub fn new(dimension: usize) -> Self {
        assert!(dimension > 0, "dimension must be positive, got {dimension}");
        Self { dimension }
    }

    fn embed_one(&self, text: &str) -> Vec<f32> {
        let mut vector = vec![0f32; self.dimension];
        for word in terms(text) {
            let letters: Vec<char> = word.chars().collect();
            let is_number = letters.iter().all(char::is_ascii_digit);
            let is_short = letters.len() < SHORT_WORD_CHARS && letters.iter().all(char::is_ascii) && !is_number;
            let weight = if is_short { SHORT_WORD_WEIGHT } else { WORD_WEIGHT };
            self.add(&mut vector, "w", &word, weight);
            if !is_short {
                let framed: Vec<char> = format!("<{word}>").chars().collect();
                for ngram in NGRAM_CHARS.iter().flat_map(|&length| framed.windows(length)) {
                    self.add(&mut vector, "n", &ngram.iter().collect::<String>(), NGRAM_WEIGHT);
                }
            }
        }
        let norm = vector.iter().map(|x| x * x).sum::<f32>().sqrt();
        if norm > 0.0 {
            vector.iter_mut().for_each(|x| *x /= norm);
        }
        vector
    }

    fn add(&self, vector: &mut [f32], kind: &str, feature: &str, weight: f32) {
        let hash = hash(kind, feature);
        let sign = if hash >> 63 == 0 { 1.0 } else { -1.0 };
        vector[(hash % self.dimension as u64) as usize] += sign * weight;
    }
}

impl Default for HashedNgramEmbedder {
    fn default() -> Self {
        Self::new(256)
    }
}

impl Embed for HashedNgramEmbedder {
    fn dimension(&self) -> usize {
        self.dimension
    }

    fn identity(&self) -> String {
        format!("hashed-ngram-v1-{}", self.dimension)
    }

    fn embed(&self, texts: &[&str], _role: TextRole) -> Result<Vec<Vec<f32>>, ModelError> {
        Ok(texts.iter().map(|text| self.embed_one(text)).collect())
    }
}

/// FNV-1a over kind and feature, then the finaliser of SplitMix64, whose high and low bits are both well mixed.
fn hash(kind: &str, feature: &str) -> u64 {
    let bytes = kind.bytes().chain([0]).chain(feature.bytes());
    let fnv = bytes
        .fold(0xcbf2_9ce4_8422_2325u64, |state, byte| (state ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    let mixed = (fnv ^ (fnv >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inner_product(a: &[f32], b: &[f32]) -> f32 {
        a.iter().zip(b).map(|(x, y)| x * y).sum()
    }

    fn embed(texts: &[&str]) -> Vec<Vec<f32>> {
        HashedNgramEmbedder::default().embed(texts, TextRole::Query).expect("hashing cannot fail")
    }

    #[test]
    fn unit_or_zero() {
        for vector in embed(&["a painted sunrise", "x", "東京都"]) {
            assert!((inner_product(&vector, &vector) - 1.0).abs() < 1e-5);
        }
        assert_eq!(embed(&["", " !?"]), vec![vec![0.0; 256]; 2]);
    }

    #[test]
    fn related_texts_are_nearer() {
        let v =
            embed(&["When did Ann paint the sunrise?", "Ann painted sunrises in May.", "The bus to work was late."]);
        let (near, far) = (inner_product(&v[0], &v[1]), inner_product(&v[0], &v[2]));
        assert!(near > 0.4 && near > far + 0.3, "{near} {far}");
    }

    /// A stored index would silently mismatch queries if these bits moved without a new identity.
    #[test]
    fn bits_are_pinned() {
        assert_eq!(hash("w", "tea"), 0x1a1c_9100_dbdd_2971);
        let vector = HashedNgramEmbedder::new(4).embed_one("tea");
        assert_eq!(vector.iter().filter(|x| **x != 0.0).count(), 1, "{vector:?}");
    }
}
