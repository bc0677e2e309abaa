//! Columns to types, and errors of the database to errors of the store.

use sqlx::Row as _;
use sqlx::sqlite::SqliteRow;
use trestle_contract::event::RunStatus;
use trestle_contract::json::RawJson;

use crate::error::{StoreError, StoreResult};

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        let text = error.to_string();
        let sqlx::Error::Database(database) = &error else {
            return match error {
                sqlx::Error::ColumnDecode { .. }
                | sqlx::Error::ColumnNotFound(_)
                | sqlx::Error::Decode(_) => Self::Corrupt(text),
                _ => Self::Unavailable(text),
            };
        };
        let code = database.code().and_then(|code| code.parse::<i32>().ok()).unwrap_or(0);
        // The low byte is the primary result code of SQLite.
        match code & 0xff {
            13 => Self::Full(text),
            11 | 26 => Self::Corrupt(text),
            3 | 8 | 14 | 23 => Self::Denied { path: "store.db".into(), reason: text },
            _ => Self::Unavailable(text),
        }
    }
}

impl From<sqlx::migrate::MigrateError> for StoreError {
    fn from(error: sqlx::migrate::MigrateError) -> Self {
        match error {
            sqlx::migrate::MigrateError::Execute(error) => error.into(),
            sqlx::migrate::MigrateError::VersionMissing(version) => Self::Invalid(format!(
                "the data directory was written by a newer version of this program (migration {version})"
            )),
            other => Self::Corrupt(other.to_string()),
        }
    }
}

/// Reading a row's columns by name. A value of the wrong shape means that the store is damaged.
pub(crate) trait Columns {
    fn text(&self, name: &str) -> StoreResult<String>;
    fn text_if_any(&self, name: &str) -> StoreResult<Option<String>>;
    fn number(&self, name: &str) -> StoreResult<i64>;
    fn number_if_any(&self, name: &str) -> StoreResult<Option<i64>>;
    fn bytes(&self, name: &str) -> StoreResult<Vec<u8>>;
    fn bytes_if_any(&self, name: &str) -> StoreResult<Option<Vec<u8>>>;

    fn flag(&self, name: &str) -> StoreResult<bool> {
        Ok(self.number(name)? != 0)
    }

    fn unsigned(&self, name: &str) -> StoreResult<u64> {
        let number = self.number(name)?;
        u64::try_from(number).map_err(|_| damaged(name, number))
    }

    fn small(&self, name: &str) -> StoreResult<u32> {
        let number = self.number(name)?;
        u32::try_from(number).map_err(|_| damaged(name, number))
    }

    fn id<T>(&self, name: &str) -> StoreResult<T>
    where
        T: TryFrom<String>,
        T::Error: std::fmt::Display,
    {
        T::try_from(self.text(name)?).map_err(|error| damaged(name, error))
    }

    fn id_if_any<T>(&self, name: &str) -> StoreResult<Option<T>>
    where
        T: TryFrom<String>,
        T::Error: std::fmt::Display,
    {
        self.text_if_any(name)?.map(T::try_from).transpose().map_err(|error| damaged(name, error))
    }

    fn status(&self, name: &str) -> StoreResult<RunStatus> {
        self.text(name)?.parse().map_err(|error| damaged(name, error))
    }

    fn json(&self, name: &str) -> StoreResult<RawJson> {
        RawJson::parse(&self.text(name)?).map_err(|error| damaged(name, error))
    }

    fn json_if_any(&self, name: &str) -> StoreResult<Option<RawJson>> {
        self.text_if_any(name)?
            .map(|text| RawJson::parse(&text))
            .transpose()
            .map_err(|error| damaged(name, error))
    }

    fn strings(&self, name: &str) -> StoreResult<Vec<String>> {
        serde_json::from_str(&self.text(name)?).map_err(|error| damaged(name, error))
    }
}

impl Columns for SqliteRow {
    fn text(&self, name: &str) -> StoreResult<String> {
        Ok(self.try_get(name)?)
    }

    fn text_if_any(&self, name: &str) -> StoreResult<Option<String>> {
        Ok(self.try_get(name)?)
    }

    fn number(&self, name: &str) -> StoreResult<i64> {
        Ok(self.try_get(name)?)
    }

    fn number_if_any(&self, name: &str) -> StoreResult<Option<i64>> {
        Ok(self.try_get(name)?)
    }

    fn bytes(&self, name: &str) -> StoreResult<Vec<u8>> {
        Ok(self.try_get(name)?)
    }

    fn bytes_if_any(&self, name: &str) -> StoreResult<Option<Vec<u8>>> {
        Ok(self.try_get(name)?)
    }
}

fn damaged(column: &str, detail: impl std::fmt::Display) -> StoreError {
    StoreError::Corrupt(format!("column {column}: {detail}"))
}

/// A number as the database stores it.
pub(crate) fn signed(number: u64) -> StoreResult<i64> {
    i64::try_from(number).map_err(|_| StoreError::Invalid(format!("{number} is too large")))
}

/// Texts as a JSON array.
pub(crate) fn text_list(texts: &[String]) -> String {
    serde_json::Value::from(texts.to_vec()).to_string()
}

/// Texts sorted, without repeats, as a JSON array: equal sets are equal texts.
pub(crate) fn text_set(texts: &[String]) -> String {
    let sorted: std::collections::BTreeSet<&str> = texts.iter().map(String::as_str).collect();
    serde_json::Value::from(sorted.into_iter().collect::<Vec<_>>()).to_string()
}
