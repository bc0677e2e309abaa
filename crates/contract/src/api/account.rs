//! Who is asking.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::{OrgId, Slug, UserId};
use crate::tolerant::objects;

/// Role in an organisation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Copy, Eq, Hash)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// May do everything.
    Owner,
    /// May manage.
    Admin,
    /// May deploy and run.
    Member,
    /// May look.
    Viewer,
}

/// `GET /v1/me`, response.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(remote = "Self")]
pub struct Me {
    /// Who.
    pub user: MeUser,
    /// Where.
    pub memberships: Vec<Membership>,
}

/// The person or principal behind a credential.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(remote = "Self")]
pub struct MeUser {
    /// Identity.
    pub id: UserId,
    /// Address; a principal without one has a made-up one.
    pub email: String,
    /// Name.
    #[serde(default)]
    pub name: Option<String>,
}

/// One organisation of a person.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Eq)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub struct Membership {
    /// The organisation.
    pub org_id: OrgId,
    /// Its slug.
    pub slug: Slug,
    /// The person's role there.
    pub role: Role,
    /// Its name.
    #[serde(default)]
    pub name: Option<String>,
    /// Its plan; `null` here.
    #[serde(default)]
    pub plan: Option<String>,
}

objects!(Me, MeUser, Membership);
