"""The properties of schema.org that descriptions of datasets use."""

from __future__ import annotations


def _terms(names: str) -> frozenset[str]:
    return frozenset(f"sc:{name}" for name in names.split())


# https://schema.org/Thing
THING_TERMS = _terms(
    "additionalType alternateName description disambiguatingDescription identifier image"
    " mainEntityOfPage name owner potentialAction sameAs subjectOf url"
)
# https://schema.org/CreativeWork
WORK_TERMS = _terms(
    "about abstract accessMode accessModeSufficient accessibilityAPI accessibilityControl"
    " accessibilityFeature accessibilityHazard accessibilitySummary accountablePerson"
    " acquireLicensePage aggregateRating alternativeHeadline archivedAt assesses associatedMedia"
    " audience audio author award character citation comment commentCount conditionsOfAccess"
    " contentLocation contentRating contentReferenceTime contributor copyrightHolder"
    " copyrightNotice copyrightYear correction countryOfOrigin creativeWorkStatus creator"
    " creditText dateCreated dateModified datePublished digitalSourceType discussionUrl"
    " displayLocation editEIDR editor educationalAlignment educationalLevel educationalUse"
    " encoding encodingFormat encodings exampleOfWork expires fileFormat funder funding genre"
    " hasPart headline inLanguage interactionStatistic interactivityType interpretedAsClaim"
    " isAccessibleForFree isBasedOn isBasedOnUrl isFamilyFriendly isPartOf keywords"
    " learningResourceType license locationCreated mainEntity maintainer material materialExtent"
    " mentions offers pattern position producer provider publication publisher publisherImprint"
    " publishingPrinciples recordedAt releasedEvent review reviews schemaVersion sdDatePublished"
    " sdLicense sdPublisher size sourceOrganization spatial spatialCoverage sponsor teaches"
    " temporal temporalCoverage text thumbnail thumbnailUrl timeRequired translationOfWork"
    " translator typicalAgeRange usageInfo version video wordCount workExample workTranslation"
)
# https://schema.org/Dataset
DATASET_TERMS = WORK_TERMS | _terms(
    "catalog datasetTimeInterval distribution includedDataCatalog includedInDataCatalog issn"
    " measurementMethod measurementTechnique variableMeasured variablesMeasured"
)
# https://schema.org/DataDownload and https://schema.org/MediaObject
FILE_TERMS = WORK_TERMS | _terms(
    "associatedArticle bitrate contentSize contentUrl duration embedUrl encodesCreativeWork"
    " endTime height ineligibleRegion playerType productionCompany regionsAllowed"
    " requiresSubscription sha256 startTime uploadDate width measurementMethod"
    " measurementTechnique"
)
# https://schema.org/Person, /Organization, /DefinedTerm, /PropertyValue and others that stand inside them
_OTHER_TERMS = _terms(
    "address affiliation addressCountry addressLocality addressRegion alumniOf areaServed box"
    " codeValue contactPoint contactType containedIn containedInPlace department email elevation"
    " familyName faxNumber foundingDate founder geo givenName hasDefinedTerm honorificPrefix"
    " honorificSuffix inCodeSet inDefinedTermSet jobTitle knowsAbout knowsLanguage latitude"
    " legalName line location logo longitude maxValue memberOf minValue nationality"
    " parentOrganization polygon postalCode propertyID ratingValue repeatCount stepValue"
    " streetAddress subOrganization target taxID telephone termCode unitCode unitText value"
    " valueReference valueRequired worksFor grant fundedItem roleName startDate endDate url"
    " reviewRating ratingCount reviewCount bestRating worstRating codeRepository"
    " programmingLanguage"
)
SCHEMA_TERMS = THING_TERMS | DATASET_TERMS | FILE_TERMS | _OTHER_TERMS
