"""Define S3's errors: the status and the usual message of each code.

https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html
"""

from slslab.aws.errors import ServiceError

ERRORS: dict[str, tuple[int, str]] = {
    "AccessControlListNotSupported": (400, "The bucket does not allow ACLs"),
    "AccessDenied": (403, "Access Denied"),
    "AccessForbidden": (403, "CORSResponse: This CORS request is not allowed by the rules of the bucket."),
    "AuthorizationHeaderMalformed": (400, "The authorization header that you provided is not valid."),
    "AuthorizationQueryParametersError": (400, "The authorization query parameters that you provided are not valid."),
    "BadDigest": (400, "The Content-MD5 or checksum value that you specified did not match what the server received."),
    "BadRequest": (400, "Bad Request"),
    "BucketAlreadyOwnedByYou": (409, "You have a bucket of this name already, in this or another Region."),
    "BucketNotEmpty": (409, "The bucket you tried to delete is not empty"),
    "ConditionalRequestConflict": (
        409,
        "The conditional request cannot succeed due to a conflicting operation against this resource.",
    ),
    "EntityTooLarge": (400, "Your proposed upload exceeds the maximum allowed size"),
    "EntityTooSmall": (400, "Your proposed upload is smaller than the minimum allowed size"),
    "IllegalVersioningConfigurationException": (400, "The Versioning element must be specified"),
    "IncompleteBody": (400, "You did not provide the number of bytes specified by the Content-Length HTTP header."),
    "InternalError": (500, "We encountered an internal error. Please try again."),
    "InvalidAccessKeyId": (403, "The AWS Access Key Id you provided does not exist in our records."),
    "InvalidArgument": (400, "Invalid Argument"),
    "InvalidChunkSizeError": (400, "Only the last chunk is allowed to have a size less than 8192 bytes"),
    "InvalidBucketName": (400, "The specified bucket is not valid."),
    "InvalidBucketAclWithObjectOwnership": (
        400,
        "Bucket cannot have ACLs set with ObjectOwnership's BucketOwnerEnforced",
    ),
    "InvalidDigest": (400, "The Content-MD5 or checksum value that you specified is not valid."),
    "InvalidPart": (
        400,
        "One or more of the specified parts could not be found.  The part may not have been uploaded, or the specified "
        "entity tag may not match the part's entity tag.",
    ),
    "InvalidPartOrder": (
        400,
        "The list of parts was not in ascending order. The parts list must be specified in order by part number.",
    ),
    "InvalidPartNumber": (416, "The requested partnumber is not satisfiable"),
    "InvalidRange": (416, "The requested range is not satisfiable"),
    "InvalidRequest": (400, "Invalid Request"),
    "InvalidStorageClass": (400, "The storage class you specified is not valid"),
    "InvalidTag": (400, "The tag provided was not a valid tag."),
    "InvalidToken": (400, "The provided token is malformed or otherwise invalid."),
    "InvalidURI": (400, "Couldn't parse the specified URI."),
    "KeyTooLongError": (400, "Your key is too long"),
    "MalformedPolicy": (400, "Policies must be valid JSON and the first byte must be '{'"),
    "MalformedXML": (400, "The XML you provided was not well-formed or did not validate against our published schema"),
    "MetadataTooLarge": (400, "Your metadata headers exceed the maximum allowed metadata size"),
    "MethodNotAllowed": (405, "The specified method is not allowed against this resource."),
    "MissingContentLength": (411, "You must provide the Content-Length HTTP header."),
    "MissingSecurityHeader": (400, "Your request was missing a required header."),
    "NoSuchBucket": (404, "The specified bucket does not exist"),
    "NoSuchBucketPolicy": (404, "The bucket policy does not exist"),
    "NoSuchCORSConfiguration": (404, "The CORS configuration does not exist"),
    "NoSuchKey": (404, "The specified key does not exist."),
    "NoSuchLifecycleConfiguration": (404, "The lifecycle configuration does not exist"),
    "NoSuchPublicAccessBlockConfiguration": (404, "The public access block configuration was not found"),
    "NoSuchTagSet": (404, "The TagSet does not exist"),
    "NoSuchUpload": (
        404,
        "The specified upload does not exist. The upload ID may be invalid, or the upload may have been aborted or "
        "completed.",
    ),
    "NoSuchVersion": (404, "The specified version does not exist."),
    "NoSuchWebsiteConfiguration": (404, "The specified bucket does not have a website configuration"),
    "NotImplemented": (501, "A header or query you provided implies functionality that is not implemented"),
    "ObjectLockConfigurationNotFoundError": (404, "Object Lock configuration does not exist for this bucket"),
    "PreconditionFailed": (412, "At least one of the pre-conditions you specified did not hold"),
    "ReplicationConfigurationNotFoundError": (404, "The replication configuration was not found"),
    "RequestHeaderSectionTooLarge": (400, "Your request header section exceeds the maximum allowed size."),
    "RequestTimeTooSkewed": (403, "The difference between the request time and the current time is too large."),
    "ServerSideEncryptionConfigurationNotFoundError": (404, "The server side encryption configuration was not found"),
    "SignatureDoesNotMatch": (
        403,
        "The request signature we calculated does not match the signature you provided. Check your key and signing "
        "method.",
    ),
    "XAmzContentSHA256Mismatch": (400, "The provided 'x-amz-content-sha256' header does not match what was computed."),
}


def failure(code: str, message: str = "", **fields: str) -> ServiceError:
    """Return S3's error with this code; `fields` are further elements of the document, such as Key."""
    status, usual = ERRORS[code]
    return ServiceError(status, code, message or usual, fields)


def refusal(what: str, hint: str) -> ServiceError:
    """Return the error for something that slslab doesn't emulate, such as "PutBucketWebsite"."""
    return failure("NotImplemented", f"slslab does not emulate {what}: {hint}")
